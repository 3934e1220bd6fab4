// SPDX-License-Identifier: MIT
// verify() and the laws on modules that the library does not know: what they get is what the
// built-in layers get.
#include <tests/support/verify_fixture.hpp>

#include <tests/support/group_mix.hpp>
#include <tests/support/square_mlp.hpp>
#include <tpsim/verify/report_text.hpp>

namespace module_tests {
namespace {

using namespace tpsim;
using namespace tpsim::testing;
using namespace stranger;

const MixShape four_heads{6, 2, 2, 2};  // 4 query heads of 2 rows on 2 kv heads

/// Every finding that a check has, by the check's id.
std::vector<std::string> messages(const Report& report, std::string_view id) {
  std::vector<std::string> out;
  for (const CheckResult& c : report.checks)
    for (const Finding& f : c.findings)
      if (c.id == id) out.push_back(f.message);
  return out;
}
bool says(const std::string& all, const std::string& part) {
  return all.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("module: a stranger's MLP passes every reading at every legal tp") {
  const BoundPlan plan = bind_plan(SquareMlpModule<>::plan({8, 12}));
  CHECK(legal_tp(plan, 16) == std::vector<int>{1, 2, 3, 4, 6, 12});
  for (const int tp : legal_tp(plan, 16))
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const Report report = verify(SquareMlpModule<>{}, SquareShape{8, 12},
                                   {.tp = tp, .tokens = 3, .readings = {.dtype = dtype}});
      INFO(text(report));
      CHECK(failed(report).empty());
      CHECK(report.subject == "square_mlp");
      for (const char* id : {"cover", "order", "partners", "state", "exact", "rounding"})
        CHECK(check(report, id).compared > 0);
      CHECK(check(report, "partners").message ==
            "up_proj.weight = up_proj.bias = down_proj.weight columns on every rank");
      if (tp > 1) CHECK(check(report, "collectives").compared == 1);
    }
}

TEST_CASE("module: heads without attention pass with separate and fused tensors in every order") {
  for (const std::string disk :
       {"", "q:kv*g*d + k:kv*d + v:kv*d", "kv*(q:g*d + k:d + v:d)", "v:kv*d + q:kv*g*d + k:kv*d"})
    for (const int tp : {1, 2, 4}) {
      MixShape shape = four_heads;
      shape.disk = disk;
      const Report report = verify(GroupMixModule<>{}, shape, {.tp = tp, .tokens = 3});
      INFO(disk << "\n" << text(report));
      CHECK(failed(report).empty());
      CHECK(check(report, "heads").compared == 2 * 4);
      CHECK(check(report, "partners").message ==
            "q_proj.weight = o_proj.weight columns, k_proj.weight = v_proj.weight on every rank");
      CHECK(check(report, "divide").message == "4 q heads, 2 k heads, 2 v heads, 8 columns over " +
                                                   std::to_string(tp) +
                                                   (tp == 1 ? " rank" : " ranks"));
      CHECK(report.cost.kv_bytes_per_token ==
            std::vector<Index>(static_cast<std::size_t>(tp), 2 * 2 * 4 * std::max(1, 2 / tp)));
    }
}

TEST_CASE("module: each fault is found by the checks that it violates") {
  struct Planted {
    Report report;
    std::set<std::string> ids;
    std::string check, message;
  };
  const SquareShape mlp{8, 12};
  const ModuleOptions two{.tp = 2, .tokens = 3}, four{.tp = 4, .tokens = 3};
  const std::vector<Planted> all{
      {verify(SquareMlpModule<MlpFault::no_sum>{}, mlp, two),
       {"state", "collectives", "exact", "replicas", "rounding"},
       "collectives",
       "the ranks call none together, wanted all_reduce"},
      {verify(SquareMlpModule<MlpFault::up_from_rank_zero>{}, mlp, two),
       {"cover", "order", "partners", "state", "exact", "rounding"},
       "order",
       "rank 1 up_proj.weight: holds up_proj.weight rows [0, 6), wanted up_proj.weight rows "
       "[6, 12)"},
      {verify(SquareMlpModule<MlpFault::down_cut_strided>{}, mlp, two),
       {"order", "partners", "state", "exact", "rounding"},
       "partners",
       "rank 0: up_proj.weight rows are up_proj.weight rows [0, 6), but down_proj.weight columns "
       "are down_proj.weight columns 0:11:2"},
      {verify(SquareMlpModule<MlpFault::down_never_loaded>{}, mlp, two),
       {"cover", "order", "partners", "state", "exact", "rounding"},
       "cover",
       "rank 0 down_proj.weight: rows [0, 8) were never written"},
      // Catalogue F21: the ranks' query heads are right, and o_proj's columns are those of others.
      {verify(GroupMixModule<MixFault::o_heads_strided>{}, four_heads, two),
       {"order", "partners", "state", "exact", "rounding"},
       "partners",
       "rank 0: qkv_proj.weight rows are q_proj.weight rows [0, 4), but o_proj.weight columns are "
       "o_proj.weight columns [0, 2) [4, 6)"},
      {verify(GroupMixModule<MixFault::k_head_modulo>{}, four_heads, four),
       {"order", "heads", "partners", "state", "exact", "rounding"},
       "heads",
       "rank 1 qkv_proj.weight: q_proj.weight head 1 meets k_proj.weight head 1 where "
       "k_proj.weight head 0 belongs (k)"},
      // What the ranks hold is right: only the values tell.
      {verify(GroupMixModule<MixFault::pairs_modulo>{}, four_heads, {.tp = 1, .tokens = 3}),
       {"state", "exact", "rounding"},
       "exact",
       "rank 0 differs from full() in 6 of 6 columns, first at column 0"},
      {verify(GroupMixModule<MixFault::no_sum>{}, four_heads, two),
       {"state", "exact", "replicas", "rounding"},
       "replicas",
       ""},
      {verify(GroupMixModule<MixFault::v_never_loaded>{}, four_heads, two),
       {"cover", "order", "heads", "partners", "state", "exact", "rounding"},
       "cover",
       "rank 1 qkv_proj.weight: rows [6, 8) were never written"},
  };
  for (const Planted& planted : all) {
    INFO(text(planted.report));
    CHECK(failed(planted.report) == planted.ids);
    bool told = planted.message.empty();
    for (const std::string& message : messages(planted.report, planted.check))
      told = told || message == planted.message;
    CHECK(told);
  }
}

// Which rank has which groups does not matter as long as q, k, v and o_proj agree.
TEST_CASE("module: kv groups dealt out in another order are no finding") {
  for (const int tp : {2, 4}) {
    const Report report =
        verify(GroupMixModule<MixFault::groups_permuted>{}, four_heads, {.tp = tp, .tokens = 3});
    INFO(text(report));
    for (const char* id : {"cover", "heads", "partners", "state", "exact", "replicas", "rounding"})
      CHECK(check(report, id).result == Outcome::pass);
    CHECK(report.passed());
  }
}

TEST_CASE("module: an illegal tp is refused with every reason and the legal tp") {
  try {
    (void)verify(GroupMixModule<>{}, MixShape{6, 2, 2, 3}, {.tp = 5});
    FAIL("tp 5 was accepted");
  } catch (const LayoutError& e) {
    CHECK(e.subject() == "tp 5 cannot split this module");
    CHECK(e.violations() ==
          std::vector<Violation>{
              {"divide", "6 kv*g over 5 ranks leaves 1 (q_proj.weight, o_proj.weight)"},
              {"divide", "5 ranks over 2 kv leaves 1 (k_proj.weight, v_proj.weight)"}});
    CHECK(e.hint() == "tp can be 1, 2 or 6");
  }
  CHECK_THROWS_AS(verify(SquareMlpModule<>{}, SquareShape{8, 12}, {.tp = 0}), LayoutError);
}

TEST_CASE("module: the report reads as text") {
  const std::string right = text(verify(SquareMlpModule<>{}, SquareShape{8, 12}, {.tp = 4}));
  CHECK(says(right,
             "square_mlp, tp 4\n  ok    divide      static  12 rows, 12 columns over 4 ranks\n"));
  CHECK(says(right, "\nverified: 10 checks passed, 2 had nothing to compare\n"));
  const std::string wrong =
      text(verify(SquareMlpModule<MlpFault::no_sum>{}, SquareShape{8, 12}, {.tp = 4}));
  for (const char* part : {"  FAIL  collectives static  ", "\n          cause: ",
                           "the ranks call none together, wanted all_reduce\n"})
    CHECK(says(wrong, part));
  CHECK(says(wrong, "6 of 10 checks failed\n"));
  Report empty;
  CHECK(text(empty) == ", tp 1\nnothing was compared\n");
}

}  // namespace module_tests
