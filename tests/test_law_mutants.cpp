// SPDX-License-Identifier: MIT
// Every law can fail: faulty layers that break it, shrunk to the smallest shape that shows them.
#include <tests/support/catch.hpp>

#include <properties/catch.hpp>
#include <tpsim/verify/verify.hpp>

#include <tests/support/law_mutants.hpp>

namespace law_mutants_tests {

using namespace tpsim;
using namespace tpsim::test;

namespace {

/// The laws that fail, by id in order, and what each says.
struct Failures {
  std::string ids;
  std::vector<laws::PropertyResult> results;
};
Failures failures(const laws::Candidate& candidate, bool slow_ones = false) {
  Failures out;
  for (const laws::Law& law : laws::all_laws()) {
    if (!slow_ones && (law.id == "schedule" || law.id == "refusal")) continue;
    laws::PropertyResult result = laws::run_property(law, candidate, fixed_settings());
    if (result.passed) continue;
    out.results.push_back(std::move(result));
    out.ids += (out.ids.empty() ? "" : " ") + law.id;
  }
  return out;
}

/// A listed fault, the laws that it breaks, and the smallest layer that shows it to the first.
struct Mutant {
  std::string layer, fault, ids, smallest;
};
const std::vector<Mutant>& mutants() {
  static const std::string loader = "cover state exact integer rounding merge",
                           fused = loader + " disk-order", named = fused + " heads",
                           sum = "state exact integer rounding",
                           qkv = "--heads 2 --kv-heads 2 --head-dim 1 --hidden 1 --tokens 1",
                           merged = "--in 1 --parts 2,2 --tokens 1",
                           mlp = "--hidden 1 --intermediate 2 --tokens 1",
                           column = "--in 1 --out 2 --tokens 1", row = "--in 2 --out 1 --tokens 1";
  static const std::vector<Mutant> all{
      // Unequal parts are refused under each other's name, in every load order.
      {"merged", "gate-up-exchanged", loader + " load-order disk-order", merged},
      {"mlp", "gate-up-exchanged", "cover state exact integer rounding merge", mlp},
      {"qkv", "k-v-exchanged", loader + " load-order disk-order heads", qkv},
      {"qkv", "fused-cut-as-one", named, qkv + " --disk 'q:kv*g*d + k:kv*d + v:kv*m'"},
      {"merged", "fused-cut-as-one", fused, merged + " --disk 'gate:n0 + up:n1'"},
      // Two kv heads on two ranks each: one kv head, or as many as ranks, would not show it.
      {"qkv", "kv-head-modulo", loader + " heads",
       "--heads 4 --kv-heads 2 --head-dim 1 --hidden 1 --tokens 1"},
      {"column", "rank-zero", loader, column},
      {"row", "rank-zero", loader, row},
      {"merged", "rank-zero", loader, merged},
      {"qkv", "rank-zero", loader, qkv},  // heads still meet: rank 0's, on every rank
      {"column", "off-by-one-rows", loader, column},
      {"merged", "off-by-one-rows", fused, merged},
      {"qkv", "off-by-one-rows", named, qkv},
      {"replicated", "off-by-one-rows", loader, column},  // one row has no next
      {"mlp", "off-by-one-rows", "cover state exact integer rounding merge disk-order", mlp},
      {"column", "never-written", loader, column},
      {"row", "never-written", loader, row},
      {"merged", "never-written", fused, merged},
      {"qkv", "never-written", named, qkv},
      {"replicated", "never-written", loader, "--in 1 --out 1 --tokens 1"},
      {"mlp", "never-written", "cover state exact integer rounding merge", mlp},
      {"row", "bias-on-every-rank", sum, row + " --bias"},
      {"mlp", "bias-on-every-rank", "state exact integer rounding", mlp + " --bias"},
      {"row", "missing-all-reduce", sum, row},
      {"mlp", "missing-all-reduce", "state exact integer rounding", mlp},
      {"row", "doubled-all-reduce", sum, row},
      {"mlp", "doubled-all-reduce", "state exact integer rounding", mlp},
      {"row", "sub-group-all-reduce", sum, row},
      {"mlp", "sub-group-all-reduce", "state exact integer rounding", mlp},
  };
  return all;
}

/// Do the words of a command give this option this value?
bool says(const std::string& command, const std::string& option, Index value) {
  return (command + " ").find(" --" + option + " " + std::to_string(value) + " ") !=
         std::string::npos;
}

}  // namespace

TEST_CASE("law mutants: every listed fault breaks its laws and no other") {
  for (const Mutant& mutant : mutants()) {
    CAPTURE(mutant.layer, mutant.fault);
    const Failures found = failures(faulty(mutant.layer, mutant.fault));
    CHECK(found.ids == mutant.ids);
    REQUIRE(!found.results.empty());
    const std::string tp = mutant.fault == "kv-head-modulo" ? "4" : "2";
    CHECK(found.results.front().command == "tpsim --tp " + tp + " --layer " + mutant.layer +
                                               " --fault " + mutant.fault + " " + mutant.smallest);
  }
  // A few of each kind; the tests of the faults themselves leave none out.
  CHECK(mutants().size() >= 20);
}

TEST_CASE("law mutants: gate and up exchanged is found at every tp") {
  for (const int tp : {1, 2, 3, 4, 8}) {
    for (const std::string layer : {"merged", "mlp"}) {
      laws::Candidate candidate = faulty(layer, "gate-up-exchanged");
      candidate.legal = [layer, tp] {
        return rc::gen::map(laws::legal_cases(layer), [tp](laws::Case c) {
          for (MergedPart& part : c.spec.parts) part.rows = part.rows / c.spec.tp * tp;
          c.spec.intermediate = c.spec.intermediate / c.spec.tp * tp;
          c.spec.tp = tp;
          return c;
        });
      };
      for (const char* id : {"cover", "state", "exact", "rounding", "merge"}) {
        CAPTURE(tp, layer, id);
        const auto result = laws::run_property(laws::law(id), candidate, fixed_settings());
        CHECK(!result.passed);
        CHECK(result.smallest.spec.tp == tp);
      }
    }
  }
}

TEST_CASE("law mutants: a loader that counts arrivals breaks the load order") {
  for (const std::string layer : {"qkv", "merged"}) {
    const Failures found = failures(varied(layer, named_by_arrival));
    CHECK(found.ids == "cover load-order");  // the static reading loads in two orders
    CHECK(found.results.front().command ==
          "tpsim --tp 2 --layer " + layer +
              (layer == "qkv" ? " --heads 2 --kv-heads 2 --head-dim 1 --hidden 1 --tokens 1"
                              : " --in 1 --parts 2,2 --tokens 1"));
  }
}

TEST_CASE("law mutants: a rank numbered by arrival breaks the schedule alone") {
  const Failures found = failures(varied("column", ranked_by_arrival), true);
  CHECK(found.ids == "schedule");
  CHECK(found.results.front().command == "tpsim --tp 2 --layer column --in 1 --out 2 --tokens 1");
}

#ifdef _OPENMP
TEST_CASE("law mutants: a sum that depends on threads breaks the schedule alone") {
  const laws::Threads one(1);
  const Failures found = failures(varied("row", sums_by_threads), true);
  CHECK(found.ids == "schedule");
  // The command shows the layer that is large enough to be shared out.
  CHECK(found.results.front().command == "tpsim --tp 2 --layer row --in 256 --out 65 --tokens 16");
}
#endif

TEST_CASE("law mutants: lost precision breaks the rounding bound alone") {
  const Failures found = failures(rough());
  CHECK(found.ids == "rounding");
  CHECK(found.results.front().smallest.dtype == DType::f32);
}

TEST_CASE("law mutants: a missing or partial or invented refusal is noticed") {
  for (const std::string& layer : layer_names()) {
    CAPTURE(layer);
    const auto run = [&](std::vector<Violation> (*told)(std::vector<Violation>)) {
      return laws::run_property(laws::law("refusal"), refusing(layer, told), fixed_settings());
    };
    CHECK(run([](std::vector<Violation> all) { return all; }).passed);
    const auto none = run([](std::vector<Violation>) { return std::vector<Violation>{}; });
    CHECK(none.because == "the layer was built");
    CHECK(laws::broken_rules(none.smallest.spec).size() <= 3);
    const auto first = run([](std::vector<Violation> all) {
      all.resize(std::min<std::size_t>(all.size(), 1));
      return all;
    });
    CHECK(first.because.starts_with("the refusal does not name rule "));
    CHECK(laws::broken_rules(first.smallest.spec).size() >= 2);
    const auto more = run([](std::vector<Violation> all) {
      all.push_back({"divide", "32 query heads over 5 ranks leaves 2"});
      return all;
    });
    CHECK(more.because ==
          "the refusal names a rule that is kept: 32 query heads over 5 ranks leaves 2");
  }
}

TEST_CASE("properties: a failure tells its smallest case and how to run it again") {
  const laws::Candidate modulo = faulty("qkv", "kv-head-modulo");
  const auto result = laws::run_property(laws::law("heads"), modulo, fixed_settings());
  CHECK(result.text ==
        "qkv: every q head has its kv head  FAILED\n"
        "  law        heads\n"
        "  smallest   tp 4  heads 4  kv-heads 2  head-dim 1  hidden 1  tokens 1   (" +
            std::to_string(result.tests) + " tests, " + std::to_string(result.shrinks) +
            " shrinks)\n"
            "  because    rank 1 weight: q head 1 meets k_proj.weight head 1, wanted kv head 0\n"
            "  run again  tpsim --tp 4 --layer qkv --fault kv-head-modulo --heads 4 --kv-heads 2 "
            "--head-dim 1 --hidden 1 --tokens 1\n"
            "  or         RC_PARAMS=\"" +
            result.reproduce +
            "\" ctest -R \"every q head has its kv head\" --output-on-failure\n"
            "  seed       1\n");
  CHECK(result.tests > result.shrinks);
  CHECK(result.shrinks > 0);

  // RC_PARAMS runs that case and no other.
  const auto again = laws::run_property(laws::law("heads"), modulo,
                                        rc::detail::configFromString(result.reproduce));
  CHECK(again.tests == 0);
  CHECK(again.command == result.command);
  CHECK(again.because == result.because);
  CHECK(!again.left_out);
  CHECK(laws::run_property(laws::law("integer"), laws::Candidate{.layer = "qkv"},
                           rc::detail::configFromString(result.reproduce))
            .left_out);
}

TEST_CASE("properties: the command describes the failing layer") {
  for (const Mutant& mutant : mutants())
    for (const laws::PropertyResult& result :
         failures(faulty(mutant.layer, mutant.fault)).results) {
      const LayerSpec& s = result.smallest.spec;
      CAPTURE(result.text);
      CHECK(result.text.find("run again  " + result.command + "\n") != std::string::npos);
      CHECK(says(result.command, "tp", s.tp));
      CHECK(says(result.command, "tokens", s.tokens));
      if (s.layer == "qkv") {
        CHECK(says(result.command, "heads", s.qkv.heads));
        CHECK(says(result.command, "kv-heads", s.qkv.kv_heads));
      }
      CHECK((result.command.find(" --bias") != std::string::npos) == s.bias);
      CHECK((result.command.find(" --disk ") != std::string::npos) == !s.disk.empty());
      // What it says to run does fail.
      CHECK(!verify(*make_faulty_subject(s, mutant.fault),
                    {.dtype = result.smallest.dtype, .seed = result.smallest.seed})
                 .passed());
    }
}

TEST_CASE("properties: an exception breaks the law and giving up is no success") {
  laws::Candidate throwing{.layer = "row"};
  throwing.make = [](const LayerSpec&) -> std::unique_ptr<Subject> {
    throw std::runtime_error("no such layer");
  };
  CHECK(laws::run_property(laws::law("cover"), throwing, fixed_settings()).because ==
        "no such layer");
  laws::Candidate nothing{.layer = "row"};
  nothing.legal = [] {
    return rc::gen::suchThat(laws::legal_cases("row"), [](const laws::Case&) { return false; });
  };
  const auto result = laws::run_property(laws::law("cover"), nothing, fixed_settings());
  CHECK(!result.passed);
  CHECK(result.text.starts_with("row: params partition the full tensor  FAILED\n"));
}

TEST_CASE("properties: a failing property fails its test", "[!shouldfail]") {
  laws::property(laws::law("exact"), faulty("row", "missing-all-reduce"), fixed_settings());
}

}  // namespace law_mutants_tests
