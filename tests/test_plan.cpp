// SPDX-License-Identifier: MIT
// Plans: what they declare, and that everything wrong with one is told at once.
#include <tests/support/verify_fixture.hpp>

#include <tests/support/group_mix.hpp>
#include <tests/support/square_mlp.hpp>

namespace plan_tests {
namespace {

using namespace tpsim;
using namespace stranger;

/// The violations of whatever the action refuses; empty when it does not.
template <class Action>
std::vector<Violation> refusal(Action action) {
  try {
    action();
  } catch (const LayoutError& e) {
    return e.violations();
  }
  return {};
}
std::vector<Violation> lint(const Plan& plan) {
  return refusal([&] { (void)bind_plan(plan); });
}
bool tells(const std::vector<Violation>& all, const std::string& rule, const std::string& part) {
  for (const Violation& v : all)
    if (v.rule == rule && v.message.find(part) != std::string::npos) return true;
  return false;
}

/// The stranger's MLP with a plan of its own.
struct Replanned {
  template <class B>
  using Rank = SquareMlp<B>;
  std::function<void(Plan&)> change;
  [[nodiscard]] Plan plan(const SquareShape& s) const {
    Plan plan = SquareMlpModule<>::plan(s);
    change(plan);
    return plan;
  }
};
std::vector<Violation> misfit(std::function<void(Plan&)> change) {
  return refusal([&] { (void)make_subject(Replanned{change}, SquareShape{4, 6}); });
}

struct TwoResults : GroupMixModule<> {
  static Plan plan(const MixShape& s) {
    Plan plan = GroupMixModule<>::plan(s);
    plan.outputs = {"H", "H"};
    return plan;
  }
};

}  // namespace

TEST_CASE("plan: names become parameters, parts and logical tensors") {
  MixShape s{6, 2, 2, 2};
  const BoundPlan separate = bind_plan(GroupMixModule<>::plan(s));
  REQUIRE(separate.tensors.size() == 4);
  CHECK(separate.tensors[1].param == "qkv_proj.weight");
  CHECK(separate.tensors[1].parts[0].tensor == "k_proj.weight");
  CHECK(separate.tensors[0].parts[0].unit() == 2);
  CHECK(separate.tensors[3].param == "o_proj.weight");
  CHECK(separate.tensors[3].tp_dim == 1);
  s.disk = "v:kv*d + q:kv*g*d + k:kv*d";
  const BoundPlan fused = bind_plan(GroupMixModule<>::plan(s));
  REQUIRE(fused.tensors[0].parts.size() == 3);
  CHECK(fused.tensors[0].parts[0].tensor == "v_proj.weight");
  // The parameter has them in the order of the cut's rules, the tensor in that of its rows.
  CHECK(fused.tensors[0].order == std::vector<std::size_t>{1, 2, 0});
}

TEST_CASE("plan: a subject has the tensors, params and partners of its plan") {
  const auto subject = make_subject(GroupMixModule<>{}, MixShape{6, 3, 2, 2}, {.tp = 4});
  REQUIRE(subject->params.size() == 2);
  const DeclaredParam& qkv = subject->params[0];
  CHECK(qkv.full_shape == Shape(24, 6));
  REQUIRE(qkv.parts.size() == 3);
  CHECK(qkv.parts[0].rows[3] == Runs::range(9, 12));
  CHECK(qkv.parts[1].rows[1] == Runs::range(0, 3));
  CHECK(qkv.parts[1].rows[2] == Runs::range(3, 6));
  CHECK(qkv.parts[2].granule == 3);
  CHECK(subject->params[1].parts[0].cols[1] == Runs::range(3, 6));
  REQUIRE(subject->heads.has_value());
  CHECK(subject->heads->heads == 4);
  CHECK(subject->heads->kv_heads == 2);
  REQUIRE(subject->partners.size() == 2);
  CHECK(subject->partners[0][1].param == "o_proj.weight");
  CHECK(subject->partners[0][1].dim == 1);
  CHECK(subject->partners[1][1].part == 2);
}

TEST_CASE("plan: inputs and outputs may be cut") {
  Plan plan = SquareMlpModule<>::plan({4, 6});
  plan.input = "i even";
  plan.outputs = {"H", {"i*H", "i even"}};
  const BoundPlan bound = bind_plan(plan);
  CHECK(bound.input.width() == 6);
  CHECK(bound.input.cut == Cut::parse("i even"));
  CHECK(bound.outputs[1].width() == 24);
  CHECK(bound.outputs[1].cut == Cut::parse("i even"));
}

TEST_CASE("plan: everything that is wrong with it is told at once") {
  const std::vector<Violation> all =
      lint({.axes = {{"H", 4}, {"i", 6}, {"z", 0}},
            .tensors = {{"a.weight", "j", "H", "column", "i even"},
                        {"b.weight", "i", "H", "colum", "i even"},
                        {"c.weight", "i", "H", "column", "H even"},
                        {"d.weight", "gate:i", "H", "column", "up:i even", "m"},
                        {"e.weight", "i", "H", "column", "i even", "m"},
                        {"f.weight", "i", "i", "column", "i even", "m"},
                        {"g.bias", "i", "", "row", "i even"},
                        {"h.weight", "i", "H", "column"},
                        {"k.weight", "i", "H", "replicated", "i even"},
                        {"l.weight", "i", "H", "column", "i chunk"},
                        {"l.weight", "i*(", "H", "column", "i even"}},
            .input = "q"});
  CHECK(tells(all, "names", "a.weight: "));
  CHECK(tells(all, "names", "b.weight: there is no style 'colum': column, row or replicated"));
  CHECK(tells(all, "names", "c.weight: the cut 'H even' must name the outermost axes of i"));
  CHECK(tells(all, "names", "d.weight: the rows have no part 'up'"));
  CHECK(tells(all, "names", "d.weight: the cut has no rule for part gate"));
  CHECK(tells(all, "names", "d.weight and e.weight both go into m.weight: label their rows"));
  CHECK(
      tells(all, "cover", "d.weight and f.weight both go into m.weight, but have 4 and 6 columns"));
  CHECK(tells(all, "names", "g.bias: style row cuts columns, and a bias has none"));
  CHECK(tells(all, "names", "h.weight: style column needs a cut"));
  CHECK(tells(all, "names", "k.weight: style replicated has no cut, not 'i even'"));
  CHECK(tells(all, "names", "l.weight: cut 'i chunk' gives ranks unequal parts"));
  CHECK(tells(all, "names", "tensor l.weight is there twice"));
  CHECK(tells(all, "names", "input: "));
  CHECK(tells(all, "cover", "the plan has no output"));
  CHECK(tells(lint({}), "cover", "the plan has no tensor"));
  CHECK(lint(SquareMlpModule<>::plan({4, 6})).empty());
}

TEST_CASE("plan: a module that does not fit its plan is refused before anything runs") {
  CHECK(tells(misfit([](Plan& p) { p.tensors[0].into = "up"; }), "names",
              "params() has no up.weight, which up_proj.weight fills in the plan"));
  CHECK(tells(misfit([](Plan& p) { p.tensors.pop_back(); }), "names",
              "no tensor of the plan fills down_proj.weight of params()"));
  const std::vector<Violation> unread = misfit([](Plan& p) {
    p.tensors.push_back({"down_proj.bias", "H"});
  });
  CHECK(tells(unread, "names",
              "params() has no down_proj.bias, which down_proj.bias fills in the plan"));
  CHECK(tells(unread, "names", "load() takes down_proj.bias on no rank"));
  CHECK(tells(misfit([](Plan& p) { p.outputs = {"i"}; }), "names",
              "result 0 of full() has 4 columns, the plan's output 6"));
  CHECK(tells(misfit([](Plan& p) { p.tensors[0].name = "uq.weight"; }), "names",
              "full(): the checkpoint has no up_proj.weight"));
  CHECK(tells(misfit([](Plan& p) { p.collectives = {{"all_reduse"}}; }), "names",
              "there is no collective 'all_reduse'"));
  CHECK(tells(refusal([] {
                (void)make_subject(TwoResults{}, MixShape{6, 2, 2, 2});
              }),
              "names", "full() has 1 results, the plan 2 outputs"));
}

}  // namespace plan_tests
