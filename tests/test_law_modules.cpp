// SPDX-License-Identifier: MIT
// The laws on modules that the library does not know, in one line each.
#include <tests/support/catch.hpp>

#include <properties/catch.hpp>
#include <sim/subjects.hpp>
#include <tests/support/group_mix.hpp>
#include <tests/support/square_mlp.hpp>

namespace law_modules_tests {

using namespace tpsim;
using namespace stranger;
namespace laws = tpsim::properties;

namespace {

/// The shapes of the MLP: drawn for a tp.
SquareShape drawn_mlp(laws::Sizes& d, int tp) { return {d.from_one(8), tp * d.from_one(4)}; }
MixShape drawn_mix(laws::Sizes& d, int tp) {
  QkvShape q;
  laws::detail::draw_heads(d, q, tp);
  return {d.from_one(6), d.from_one(3), q.kv_heads, q.heads / q.kv_heads};
}

/// Fixed, so that a failure to reproduce in RC_PARAMS belongs to other tests.
laws::Settings fixed() {
  laws::Settings settings;
  settings.testParams.seed = 1;
  return settings;
}
template <class Module, class Shapes>
laws::PropertyResult run(const std::string& id, const Module& module, const Shapes& shapes) {
  return laws::run_property(laws::law(id), laws::candidate(module, shapes), fixed());
}

}  // namespace

TEST_CASE("laws on modules: a stranger's MLP keeps them all") {
  const auto shapes = [](auto& size, int tp) {
    return SquareShape{size.from_one(8), tp * size.from_one(4)};
  };
  CHECK(laws::run_all_laws(SquareMlpModule<>{}, shapes) ==
        std::vector<std::string>{"integer", "disk-order", "heads", "refusal"});
}
TEST_CASE("laws on modules: heads without attention keep them all") {
  CHECK(laws::run_all_laws(GroupMixModule<>{}, drawn_mix) ==
        std::vector<std::string>{"integer", "disk-order", "refusal"});
}
TEST_CASE("laws on modules: shapes may be a list or a generator") {
  CHECK(laws::run_all_laws(SquareMlpModule<>{}, {SquareShape{1, 2}, SquareShape{3, 12}}).size() ==
        4);
  const rc::Gen<SquareShape> shapes = rc::gen::map(rc::gen::inRange<Index>(1, 5), [](Index n) {
    return SquareShape{n, 6 * n};
  });
  CHECK(laws::run_all_laws(SquareMlpModule<>{}, shapes).size() == 4);
}

TEST_CASE("laws on modules: faults break their laws and shrink to the smallest shape") {
  const auto sum = run("state", SquareMlpModule<MlpFault::no_sum>{}, drawn_mlp);
  CHECK(!sum.passed);
  CHECK(laws::describe(sum.smallest) == "tp 2  H 1  i 2  tokens 1");
  CHECK(sum.text.find("square_mlp: every value is in the state that its reader needs  FAILED\n"
                      "  law        state\n"
                      "  smallest   tp 2  H 1  i 2  tokens 1   (") == 0);
  CHECK(sum.text.find("\n  run again  RC_PARAMS=\"reproduce=") != std::string::npos);
  CHECK(sum.text.find("tpsim --tp") == std::string::npos);

  const rc::Gen<SquareShape> shapes = rc::gen::map(rc::gen::inRange<Index>(1, 5), [](Index n) {
    return SquareShape{n, 6 * n};
  });
  CHECK(laws::describe(run("exact", SquareMlpModule<MlpFault::no_sum>{}, shapes).smallest) ==
        "tp 2  H 1  i 6  tokens 1");
  // Strided columns of a rank that has one are its own.
  const auto strided = run("cover", SquareMlpModule<MlpFault::down_cut_strided>{}, drawn_mlp);
  CHECK(laws::describe(strided.smallest) == "tp 2  H 1  i 4  tokens 1");
  const auto heads = run("heads", GroupMixModule<MixFault::k_head_modulo>{}, drawn_mix);
  CHECK(laws::describe(heads.smallest) == "tp 4  H 1  d 1  g 2  kv 2  tokens 1");
  CHECK(heads.because ==
        "rank 1 qkv_proj.weight: q head 1 meets k_proj.weight head 1, wanted kv head 0");
  CHECK(!run("merge", GroupMixModule<MixFault::o_heads_strided>{}, drawn_mix).passed);
  CHECK(!run("rounding", GroupMixModule<MixFault::no_sum>{}, drawn_mix).passed);
  CHECK(!run("merge", GroupMixModule<MixFault::v_never_loaded>{}, drawn_mix).passed);

  // RC_PARAMS runs that case and no other.
  const auto again = laws::run_property(
      laws::law("state"), laws::candidate(SquareMlpModule<MlpFault::no_sum>{}, drawn_mlp),
      rc::detail::configFromString(sum.reproduce));
  CHECK(again.tests == 0);
  CHECK(again.because == sum.because);
}

TEST_CASE("laws on modules: shapes that no tp can cut break every law") {
  const auto none = run("cover", SquareMlpModule<>{}, std::vector<SquareShape>{{1, 0}});
  CHECK(!none.passed);
  CHECK(none.because.find("the plan cannot be used") == 0);
}

}  // namespace law_modules_tests
