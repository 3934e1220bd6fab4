// SPDX-License-Identifier: MIT
// What looks wrong and is right: no reading finds anything, and every check looked at something.
#include <string>
#include <vector>

#include <tests/support/small_shapes.hpp>
#include <tests/support/verify_fixture.hpp>

#include <properties/laws/full.hpp>
#include <tpsim/verify/faults/benign.hpp>

namespace negative_controls_tests {

using namespace tpsim;
using namespace tpsim::testing;

namespace {

// Nothing is found, and the checks that hold for every layer compared something.
void check_quiet(const Report& report) {
  for (const CheckResult& c : report.checks) {
    INFO(c.id << " " << name(c.reading));
    for (const Finding& f : c.findings) UNSCOPED_INFO(f.message << " (" << f.cause << ")");
    CHECK(c.findings.empty());
    CHECK((c.result == Outcome::skip) == (c.compared == 0));
  }
  for (const char* id : {"cover", "order", "state", "exact", "rounding"})
    CHECK(check(report, id).compared > 0);
}

const NamedVariation& benign(const std::string& name) {
  for (const NamedVariation& v : benign_variations())
    if (v.name == name) return v;
  FAIL("no variation " << name);
  throw name;
}

// Every option that the layer has, one at a time.
std::vector<LayerSpec> options_of(const LayerSpec& plain) {
  std::vector<LayerSpec> out{plain};
  const auto add = [&](auto&& set) {
    LayerSpec s = plain;
    set(s);
    if (violations(s).empty()) out.push_back(std::move(s));
  };
  add([](LayerSpec& s) { s.bias = true; });
  if (plain.layer != "mlp") add([](LayerSpec& s) { s.bias = s.skip_bias_add = true; });
  if (plain.layer == "column" || plain.layer == "merged")
    add([](LayerSpec& s) { s.gather_output = s.bias = true; });
  if (plain.layer == "row") {
    add([](LayerSpec& s) { s.input_is_parallel = false; });
    add([](LayerSpec& s) { s.reduce_results = false; });
  }
  return out;
}

}  // namespace

TEST_CASE("negative controls: no reading finds anything in a benign variation") {
  for (const NamedVariation& v : benign_variations())
    for (const std::string& layer : v.layers) {
      int runs = 0;
      for (LayerSpec s : small_shapes(layer))
        for (const int tp : {1, 2, 4, 8}) {
          s.tp = tp;
          const LayerSpec used = v.needs ? v.needs(s) : s;
          if (!violations(used).empty()) continue;
          INFO(v.name << " " << layer << " tp " << tp);
          check_quiet(verify(*make_benign_subject(s, v)));
          ++runs;
        }
      INFO(v.name << " " << layer);
      CHECK(runs >= 4);
    }
}

TEST_CASE("negative controls: the laws of what is computed hold for every benign variation") {
  int held = 0;
  for (const NamedVariation& v : benign_variations())
    for (const std::string& layer : v.layers) {
      properties::Candidate candidate;
      candidate.layer = layer;
      candidate.make = [&v](const LayerSpec& s) { return make_benign_subject(s, v); };
      LayerSpec s = small(layer, 4);
      if (v.needs) s = v.needs(s);
      INFO(v.name << " " << layer);
      for (const auto law :
           {properties::every_value_is_in_its_state, properties::equals_full_in_the_field,
            properties::equals_full_bit_for_bit_on_integers,
            properties::equals_full_within_the_bound}) {
        const properties::Verdict verdict = law(candidate, {s, DType::f32, 1});
        CHECK(verdict.because == "");
        held += verdict.compared > 0 ? 1 : 0;
      }
    }
  CHECK(held >= 30);
}

TEST_CASE("negative controls: partial results of bf16 and f16 stay within their bounds") {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const NamedVariation& v : benign_variations())
      for (const std::string& layer : v.layers)
        for (LayerSpec s : small_shapes(layer)) {
          s.tp = 4;
          if (!violations(v.needs ? v.needs(s) : s).empty()) continue;
          VerifyOptions options{.statics = false, .exact = false, .dtype = dtype};
          INFO(v.name << " " << layer << " " << name(dtype));
          const Report report = verify(*make_benign_subject(s, v), options);
          for (const CheckResult& c : report.checks) {
            // bias / tp leaves the integers, and 8 or 11 bits have no room for its fraction.
            if (c.id == "integer" && v.name == "bias-divided-on-every-rank") continue;
            INFO(c.id);
            CHECK(c.findings.empty());
          }
          CHECK(check(report, "rounding").compared > 0);
        }
}

TEST_CASE("negative controls: the axis of the cut follows the use of a layer, not its shape") {
  for (const std::string layer : {"column", "row"})
    for (LayerSpec s : small_shapes(layer))
      for (const int tp : {1, 2, 4, 8}) {
        s.tp = tp;
        INFO(layer << " [" << s.out << ", " << s.in << "] tp " << tp);
        check_quiet(verify(*make_subject(s)));
      }
}

TEST_CASE("negative controls: no result depends on the order of the ranks' turns") {
  for (const Schedule schedule : {Schedule::reversed(), Schedule::shuffled(7)})
    for (const std::string& layer : layer_names())
      for (const LayerSpec& shape : small_shapes(layer))
        for (LayerSpec s : options_of(shape)) {
          s.tp = 4;
          if (!violations(s).empty()) continue;
          INFO(layer);
          check_quiet(verify(*make_subject(s), {.schedule = schedule}));
        }
}

TEST_CASE("negative controls: a group of the middle of a job gives what a whole job gives") {
  using Order = GroupPlace::Order;
  const std::vector<GroupPlace> places{
      {2, Order::consecutive}, {3, Order::strided}, {1, Order::reversed}, {2, Order::reversed}};
  for (const GroupPlace& place : places)
    for (const std::string& layer : layer_names())
      for (const LayerSpec& shape : small_shapes(layer))
        for (LayerSpec s : options_of(shape))
          for (const int tp : {1, 2, 4}) {
            s.tp = tp;
            if (!violations(s).empty()) continue;
            const auto whole = make_subject(s), part = make_subject(s);
            part->place = place;
            INFO(layer << " tp " << tp << " groups " << place.groups);
            const Report here = verify(*part), there = verify(*whole);
            check_quiet(here);
            REQUIRE(here.checks.size() == there.checks.size());
            for (std::size_t i = 0; i < here.checks.size(); ++i)
              CHECK(here.checks[i].message == there.checks[i].message);
            CHECK(here.collectives.size() == there.collectives.size());
            for (const CollectiveReport& c : here.collectives) CHECK(c.group.starts_with("world/"));
          }
}

TEST_CASE("negative controls: what a fault does inside a group of a job is found there too") {
  for (const char* fault : {"rank-zero", "missing-all-reduce", "skipped-collective"}) {
    const auto subject = make_faulty_subject(small("row", 2), fault);
    subject->place = {2, GroupPlace::Order::reversed};
    const Report report = verify(*subject);
    INFO(fault);
    CHECK(!report.passed());
    for (const CheckResult& c : report.checks)
      for (const Finding& f : c.findings) CHECK(f.rank < 2);  // ranks of the group, not of the job
  }
}

TEST_CASE("negative controls: the variations do what they are named for") {
  // Each differs from the real layer in something that can be seen.
  LayerSpec s = small("mlp", 4);
  const auto reversed = make_benign_subject(s, benign("ranks-reversed"));
  CHECK(read_statically(*reversed).held[0][0].pieces.front().src_row == 12);
  CHECK(read_statically(*make_subject(s)).held[0][0].pieces.front().src_row == 0);

  LayerSpec row = small("row", 4);
  const auto late = read_statically(*make_benign_subject(row, benign("bias-after-sum")));
  REQUIRE(late.trace.size() == 1);
  CHECK(where(late.trace[0].at).find("faulty_forward.hpp") != std::string::npos);
  const auto other = read_statically(*make_benign_subject(row, benign("sum-from-last-rank")));
  REQUIRE(other.trace.size() == 2);
  CHECK(other.trace[0].op == CollectiveOp::split);
  CHECK(other.trace[1].group == "world/0");

  // Cut contiguously, rank 1 holds the second group: q rows 2 d.., then k, then v.
  LayerSpec qkv = small("qkv", 4);
  const auto groups = read_statically(*make_benign_subject(qkv, benign("group-order-cut-as-one")));
  const auto& pieces = groups.held[1][0].pieces;
  REQUIRE(pieces.size() == 3);
  CHECK(pieces[0].tensor->name == "q_proj.weight");
  CHECK(pieces[0].src_row == 24);
  CHECK(pieces[2].tensor->name == "v_proj.weight");
  CHECK(pieces[2].src_row == 6);
}

}  // namespace negative_controls_tests
