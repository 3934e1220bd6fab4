// SPDX-License-Identifier: MIT
// The kinds of fault that real tensor-parallel code has had: which of the listed faults stands for
// each, or why none can yet; and two faults at once, of which neither hides the other.
#include <set>
#include <string>
#include <vector>

#include <tests/support/catch.hpp>
#include <tests/support/kill_matrix.hpp>

namespace fault_catalogue_tests {
namespace {

using namespace tpsim;
using namespace tpsim::testing;

struct Kind {
  const char* what;
  std::vector<std::string> faults;
  const char* otherwise = "";  // where it is shown instead, or why it cannot be
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{
      {"every rank loads one shard, or another rank's", {"rank-zero", "next-rank-part"}},
      {"one module takes tp as 1 and its result is summed", {"not-cut"}},
      {"a cut of what is already cut", {"cut-twice"}},
      {"a cut along the wrong dimension", {"wrong-dimension"}},
      {"storage as [in, out]", {}, "copies do not transpose: other shapes are refused"},
      {"an offset of the padded or of the local size", {"padded-offset", "local-offset"}},
      {"an offset off by a row, a head, a part",
       {"off-by-one-rows", "off-by-one-head", "next-rank-part"}},
      {"tail rows dropped", {"tail-dropped"}},
      {"the chunk rule and the tensor_split rule exchanged",
       {},
       "every cut of these layers is even, where the two rules agree"},
      {"empty or negative shards on the last ranks", {}, "refused: faults of a request"},
      {"a parameter never written, a tensor never read", {"never-written", "bias-never-read"}},
      {"a name that matches in part", {"name-matched-in-part"}},
      {"divisibility of a sum of parts", {}, "refused: faults of a request"},
      {"a load that depends on the order of arrival", {"arrival-order"}},
      {"1-D parameters cut like 2-D ones, or all left whole", {"bias-not-cut", "row-bias-cut"}},
      {"kv head rank % kv_heads", {"kv-head-modulo"}},
      {"kv head 0 on every rank", {"kv-head-zero"}},
      {"a cut inside a head", {}, "refused: faults of a request"},
      {"global head counts after the cut, local ones before it",
       {"global-head-count", "local-heads-on-disk"}},
      {"head_dim as hidden / heads", {"even-head-dim"}},
      {"the kv head count of another model", {"kv-heads-as-heads"}},
      {"o_proj columns of other heads than the rank's", {}, "in a module: test_module"},
      {"shard ids exchanged", {"k-v-exchanged", "q-k-exchanged", "gate-up-exchanged"}},
      {"a fused tensor cut as one", {"fused-cut-as-one"}},
      {"per-head order read as blocked", {"per-head-read-as-blocked"}},
      {"per-group order read as another",
       {"kv-group-read-as-blocked", "kv-group-read-as-per-head"}},
      {"stripes read as blocked, and the reverse",
       {"stripes-read-as-blocked", "blocked-read-as-stripes"}},
      {"equal thirds for q, k and v", {"equal-thirds"}},
      {"interleaved gate and up read as halves, and the reverse",
       {"interleaved-read-as-halves", "halves-read-as-interleaved"}},
      {"rows reordered twice", {"reordered-twice"}},
      {"a bias cut by another rule than its weight", {"fused-bias-cut-as-one", "bias-not-cut"}},
      {"a row bias on every rank", {"bias-on-every-rank"}},
      {"a row bias on no rank", {"bias-on-no-rank"}},
      {"a row bias over tp in one place only", {"bias-divided-once"}},
      {"a sum missing or doubled", {"missing-all-reduce", "doubled-all-reduce"}},
      {"a sum of a replicated value", {"sum-of-whole"}},
      {"partial and replicated values added before the sum",
       {"residual-before-sum", "bias-on-every-rank"}},
      {"a sum over too small or another group", {"sub-group-all-reduce", "wrong-group-all-reduce"}},
      {"an average or a maximum for a sum", {"average-for-sum", "max-for-sum"}},
      {"a gather in another order", {"gather-reversed"}},
      {"gathered parts not regrouped", {"parts-not-regrouped"}},
      {"one rank skips, adds or reorders a collective",
       {"skipped-collective", "added-collective", "reordered-collectives"}},
      {"a replicated value that differs between ranks", {"bias-after-sum-once"}},
      {"partial products of different tokens summed",
       {},
       "every rank has every token: no layer shards them; the transition table has the rule"},
      {"a sum in a lower type than declared", {"bf16-sum"}},
      {"an export that does not undo the order, or exports replicas twice",
       {},
       "nothing is exported yet; law merge puts shards together again"},
      {"statistics of a norm over all heads that are the rank's own",
       {"norm-statistics-not-shared"}},
      {"squares of all heads over the local width, or the reverse", {"norm-over-local-width"}},
      {"a kv head's squares counted once for each rank that holds it", {"norm-counts-kv-replicas"}},
      {"a k norm cut by rank, not by kv head", {"k-norm-cut-by-rank"}},
      {"the norm of one head shared as if it were over all", {"head-norm-shared"}},
      {"a per-head vector whole, or its first part on every rank", {"sinks-of-first-heads"}},
      {"ALiBi slopes of the rank's heads", {"slopes-of-local-heads", "slopes-from-head-zero"}},
      {"rows of a head gate that do not follow q", {}, "no attention here has a head gate"},
      {"the scale, the window or the positions of another program",
       {"scaled-by-rank-width", "window-one-longer", "positions-restart"}},
      {"a border of the vocabulary off by one", {"vocab-border-off-by-one"}},
      {"ids of other ranks not masked, or not zeroed", {"ids-not-masked", "ids-not-zeroed"}},
      {"an embedding that is not reduced", {"missing-all-reduce"}},
      {"padded rows that give logits, or join what reads them",
       {"padded-logits-kept", "padding-joins-argmax"}},
      {"a choice over one shard, or without its start",
       {"argmax-over-one-shard", "argmax-without-start"}},
      {"logits of other tokens than the last of each sequence",
       {"last-token-of-batch", "head-over-all-tokens"}},
      {"a tied head copied, not cut", {"tied-head-not-cut"}},
      {"a layout guessed from shapes", {}, "it is never guessed: an expression names it"},
      {"random numbers that differ between ranks", {}, "no layer draws any"},
  };
  return all;
}

/// Of all checks, or of one.
std::set<std::string> causes(const LayerSpec& spec, const Variation& variation,
                             const std::string& only = "") {
  std::set<std::string> out;
  for (const CheckResult& c : verify(LinearSubject<FaultyLayers>(spec, variation)).checks)
    for (const Finding& f : c.findings)
      if (!f.cause.empty() && (only.empty() || c.id == only)) out.insert(f.cause);
  return out;
}

bool meet(const std::set<std::string>& a, const std::set<std::string>& b) {
  return std::any_of(a.begin(), a.end(), [&](const std::string& x) { return b.count(x) == 1; });
}

}  // namespace

TEST_CASE("fault catalogue: each kind has its fault, or a reason why not, and no fault is extra") {
  std::set<std::string> used;
  for (const Kind& kind : kinds()) {
    INFO(kind.what);
    CHECK(kind.faults.empty() == !std::string(kind.otherwise).empty());
    for (const std::string& name : kind.faults) {
      INFO(name);
      CHECK(find_fault(name) != nullptr);
      used.insert(name);
    }
  }
  for (const Fault& fault : faults()) {
    INFO(fault.name);
    CHECK(used.count(fault.name) == 1);
  }
}

TEST_CASE("two faults: a wrong loader does not hide wrong calls, nor does anything hide it") {
  int pairs = 0, calls = 0;
  const std::vector<Fault> loaders = detail::loader_faults();
  std::vector<Fault> later = detail::comm_faults();
  for (const Fault& f : detail::forward_faults()) later.push_back(f);
  for (const std::string layer : {"row", "mlp"})
    for (const Fault& a : loaders)
      for (const Fault& b : later) {
        if (!a.applies_to(layer) || !b.applies_to(layer)) continue;
        LayerSpec s = shapes_of(layer).front();
        s.tp = 4;
        s = spec_for_fault(spec_for_fault(s, a.name), b.name);
        if (!violations(s).empty()) continue;
        const Variation first = a.variation(s), second = b.variation(s);
        const bool one_place =
            first.layer != LayerChange::none && second.layer != LayerChange::none;
        if (one_place || first.misbuild) continue;  // one of them would take the other's place
        Variation both = first;
        if (both.layer == LayerChange::none) both.layer = second.layer;
        both.between = second.between;
        const auto alone = causes(s, first), called = causes(s, second, "collectives");
        if (alone.empty()) continue;
        INFO(layer << " " << a.name << " and " << b.name);
        ++pairs;
        CHECK(meet(causes(s, both), alone));
        // A forward that cannot be run calls nothing.
        if (called.empty() || alone.count("the forward pass stopped there") == 1) continue;
        ++calls;
        CHECK(causes(s, both, "collectives") == called);
      }
  CHECK(pairs > 100);
  CHECK(calls > 100);
}

}  // namespace fault_catalogue_tests
