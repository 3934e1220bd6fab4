// SPDX-License-Identifier: MIT
// Faults of forward passes and of collectives: exactly which checks find them, and the cause told.
#include <set>
#include <string>
#include <vector>

#include <tests/support/verify_fixture.hpp>

namespace forward_faults_tests {

using namespace tpsim;
using namespace tpsim::testing;

namespace {

struct Row {
  const char *fault, *layer;
  int tp;
  std::set<std::string> checks;  // these fail, and no other
  const char* by;                // the check that tells
  const char* cause;             // its first cause
};

using Ids = std::set<std::string>;
const Ids wrong{"state", "exact", "integer", "rounding"};
const Ids extra{"state", "collectives", "exact", "integer", "rounding"};
const Ids unequal{"state", "exact", "integer", "rounding", "replicas"};
const Ids unsummed{"state", "collectives", "exact", "integer", "rounding", "replicas"};
const Ids stuck{"collectives", "exact", "integer", "rounding"};

const char* const every_rank = "every rank adds the whole bias before the all_reduce";
const char* const summed_whole =
    "a value is summed that every rank has whole: its all_reduce is doubled, or it was never cut";
const char* const half = "the sum runs over too small a group: 2 of 4 ranks";
const char* const maximum = "a maximum where a sum belongs";
const char* const averaged = "the ranks' partial products were averaged";
const char* const unsummed_cause = "no collective sums the partial products";
const char* const kept_bf16 =
    "every result is a bf16 number: a step on the way keeps bf16, not f32";

const std::vector<Row>& rows() {
  static const std::vector<Row> all{
      {"bias-on-every-rank", "row", 2, wrong, "state", every_rank},
      {"bias-on-every-rank", "mlp", 4, wrong, "state", every_rank},
      {"bias-on-no-rank", "row", 1, wrong, "state", "bias is added on no rank"},
      {"bias-on-no-rank", "mlp", 4, wrong, "state", "down_proj.bias is added on no rank"},
      {"bias-divided-once", "row", 4, wrong, "state",
       "bias is divided by tp, but not added on every rank"},
      {"bias-divided-once", "mlp", 2, wrong, "state",
       "down_proj.bias is divided by tp, but not added on every rank"},
      {"bias-after-sum-once", "row", 2, unequal, "state",
       "bias is added after the sum, on some ranks only"},
      {"bias-after-sum-once", "mlp", 4, unequal, "state",
       "down_proj.bias is added after the sum, on some ranks only"},
      {"residual-before-sum", "row", 2, wrong, "state",
       "every rank adds a residual before the all_reduce"},
      {"residual-before-sum", "row", 4, wrong, "state",
       "every rank adds a residual before the all_reduce"},
      {"sum-of-whole", "column", 4, extra, "state", summed_whole},
      {"sum-of-whole", "merged", 2, extra, "state", summed_whole},
      {"sum-of-whole", "replicated", 2, extra, "state", summed_whole},
      {"average-for-sum", "row", 4, wrong, "state", averaged},
      {"average-for-sum", "mlp", 2, wrong, "state", averaged},
      {"parts-not-regrouped", "merged", 2, wrong, "state",
       "gathered columns are not regrouped: each rank's parts still lie side by side"},
      {"missing-all-reduce", "row", 2, unsummed, "state", unsummed_cause},
      {"missing-all-reduce", "mlp", 4, unsummed, "state", unsummed_cause},
      {"doubled-all-reduce", "row", 4, extra, "state", summed_whole},
      {"doubled-all-reduce", "mlp", 2, extra, "state", summed_whole},
      {"missing-all-reduce", "embedding", 4, unsummed, "state", unsummed_cause},
      {"doubled-all-reduce", "embedding", 2, extra, "state", summed_whole},
      {"sub-group-all-reduce", "row", 4, unsummed, "state", half},
      {"sub-group-all-reduce", "mlp", 4, unsummed, "state", half},
      {"wrong-group-all-reduce", "row", 4, unsummed, "state", half},
      {"wrong-group-all-reduce", "mlp", 4, unsummed, "collectives",
       "a collective runs over 2 of 4 ranks"},
      {"max-for-sum", "row", 2, wrong, "state", maximum},
      {"max-for-sum", "mlp", 4, wrong, "state", maximum},
      {"gather-reversed", "column", 2, wrong, "state",
       "the gather joins the ranks' columns in another order"},
      {"gather-reversed", "merged", 4, wrong, "state",
       "the gather joins the ranks' columns in another order"},
      {"skipped-collective", "row", 4, stuck, "collectives",
       "rank 3 calls one all_reduce less than the others"},
      {"skipped-collective", "mlp", 2, stuck, "collectives",
       "some ranks call one all_reduce more than the others"},
      {"skipped-collective", "column", 4, stuck, "collectives",
       "rank 3 calls one all_gather less than the others"},
      {"added-collective", "row", 4, stuck, "collectives",
       "rank 3 calls one all_reduce more than the others"},
      {"added-collective", "mlp", 4, stuck, "collectives",
       "rank 3 calls one all_reduce more than the others"},
      {"added-collective", "column", 2, stuck, "collectives",
       "some ranks call one all_gather more than the others"},
      {"reordered-collectives", "row", 4, stuck, "collectives",
       "rank 3 calls barrier where the others call all_reduce"},
      {"reordered-collectives", "mlp", 2, stuck, "collectives",
       "some ranks call all_reduce where the others call barrier"},
      {"reordered-collectives", "column", 4, stuck, "collectives",
       "rank 3 calls barrier where the others call all_gather"},
      {"bf16-sum", "row", 4, {"rounding"}, "rounding", kept_bf16},
      {"bf16-sum", "mlp", 2, {"rounding"}, "rounding", kept_bf16},
  };
  return all;
}

Report report_of(const char* fault, const char* layer, int tp) {
  return verify(*make_faulty_subject(spec_for_fault(small(layer, tp), fault), fault));
}

std::string first_cause(const CheckResult& c) {
  for (const Finding& f : c.findings)
    if (!f.cause.empty()) return f.cause;
  return "";
}

}  // namespace

TEST_CASE("forward faults: each breaks exactly its checks, and its cause is told") {
  for (const Row& row : rows()) {
    const Report report = report_of(row.fault, row.layer, row.tp);
    INFO(row.fault << " " << row.layer << " tp " << row.tp);
    CHECK(failed(report) == row.checks);
    CHECK(first_cause(check(report, row.by)) == row.cause);
    for (const CheckResult& c : report.checks)
      for (const Finding& f : c.findings) {
        CHECK(!f.message.empty());
        CHECK(f.rank >= -1);
        CHECK(f.rank < row.tp);
        CHECK(f.cause.empty() == f.repair.empty());
      }
  }
}

TEST_CASE("forward faults: no fault of the forward pass or of a collective is left out") {
  std::set<std::pair<std::string, std::string>> tested, listed;
  for (const Row& row : rows()) tested.emplace(row.fault, row.layer);
  for (const auto& part : {detail::forward_faults(), detail::comm_faults()})
    for (const Fault& fault : part)
      for (const std::string& layer : fault.layers)  // those of a decoder: the kill matrix
        if (!is_decoder_layer(layer)) listed.emplace(fault.name, layer);
  CHECK(tested == listed);
}

TEST_CASE("forward faults: at tp 1 there is nothing to sum, and only a missing bias shows") {
  for (const auto& part : {detail::forward_faults(), detail::comm_faults()})
    for (const Fault& fault : part)
      for (const std::string& layer : fault.layers) {
        INFO(fault.name << " " << layer);
        CHECK(report_of(fault.name.c_str(), layer.c_str(), 1).passed() ==
              (fault.name != "bias-on-no-rank"));
      }
}

TEST_CASE("forward faults: numbers alone tell the cause of what they show") {
  const auto cause = [](const char* fault, const char* layer, const char* by) {
    return first_cause(check(report_of(fault, layer, 4), by));
  };
  for (const char* by : {"exact", "integer"}) {
    INFO(by);
    CHECK(cause("doubled-all-reduce", "row", by) ==
          "every element is tp times too large: a whole value was summed over the ranks");
    CHECK(cause("average-for-sum", "row", by) ==
          "every element is tp times too small: the sum was divided by tp");
    CHECK(cause("missing-all-reduce", "row", by) ==
          "the ranks return partial results: their sum is right");
    CHECK(cause("gather-reversed", "column", by) == "the columns are right, in another order");
    CHECK(cause("bias-on-every-rank", "row", by) ==
          "the difference is the same for every token: a bias is wrong, or counted wrongly");
    // A maximum, or a sum of some ranks, leaves no sign in the numbers.
    CHECK(cause("max-for-sum", "row", by).empty());
    CHECK(cause("sub-group-all-reduce", "row", by).empty());
  }
}

TEST_CASE("forward faults: a bf16 sum is right where bf16 is the declared type") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Report report =
        verify(*make_faulty_subject(small("row", 4), "bf16-sum"), {.dtype = dtype});
    INFO(name(dtype));
    CHECK(report.passed() == (dtype == DType::bf16));
  }
}

}  // namespace forward_faults_tests
