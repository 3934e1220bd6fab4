// SPDX-License-Identifier: MIT
// Every plan with small odd sizes at every tp to 16: what is legal passes all readings, in a
// prefill and in decode steps; what is not is refused with every reason.
#include <nlohmann/json.hpp>

#include <sim/check_command.hpp>
#include <sim/check_model.hpp>
#include <sim/model_source.hpp>
#include <tests/support/catch.hpp>
#include <tests/support/test_files.hpp>

namespace tpsim::test::plan_sweep_tests {
namespace {

using cli::CheckedModel;
using cli::CheckOutcome;
using cli::CheckRequest;
using cli::CheckRun;

constexpr int most_tp = 16;

/// One model of each plan, whose other keys the small ones keep.
struct Family {
  const char* model;
  bool own_head_dim;  ///< has the key head_dim, so that heads * head_dim may differ from hidden
  bool own_kv_heads;
};
constexpr Family families[] = {{"llama-3-8b", true, true},   {"mistral-7b", true, true},
                               {"qwen2.5-7b", false, true},  {"qwen3-8b", true, true},
                               {"phi-3-mini", false, true},  {"internlm2-7b", false, true},
                               {"pythia-6.9b", false, false}};

struct SmallSizes {
  Index kv_heads, heads, head_dim, intermediate, vocab, hidden;
};

/// Sizes that `tp` cuts, and few others do. By `variant` the ranks have a kv head each, share one
/// (tp > kv heads), or have several.
SmallSizes sizes_for(int tp, int variant, const Family& family) {
  SmallSizes s{};
  s.kv_heads = tp;
  if (variant == 1)
    for (Index d = 1; d < tp; ++d)
      if (tp % d == 0) s.kv_heads = d;
  if (variant == 2) s.kv_heads = 3 * tp;
  s.heads = std::max<Index>(s.kv_heads, tp) * (variant == 2 ? 1 : 3);
  if (!family.own_kv_heads) s.heads = s.kv_heads = variant == 1 ? 2 * tp : s.kv_heads;
  s.head_dim = 8;
  s.intermediate = tp * Index{variant == 1 ? 5 : 3};
  s.vocab = 64 * tp - 7;
  s.hidden = family.own_head_dim ? s.heads * s.head_dim - 6 : s.heads * s.head_dim;
  return s;
}

nlohmann::json config_of(const Family& family, const SmallSizes& s) {
  nlohmann::json c = nlohmann::json::parse(cli::find_model_source(family.model).config);
  c["num_hidden_layers"] = 2;
  c["num_attention_heads"] = s.heads;
  if (family.own_kv_heads) c["num_key_value_heads"] = s.kv_heads;
  if (family.own_head_dim) c["head_dim"] = s.head_dim;
  c["hidden_size"] = s.hidden;
  c["intermediate_size"] = s.intermediate;
  c["vocab_size"] = s.vocab;
  if (c.contains("max_window_layers")) c["max_window_layers"] = 2;
  if (c.contains("sliding_window") && c["sliding_window"].is_number()) c["sliding_window"] = 3;
  return c;
}

/// The rules once more, from the sizes alone: how many of them `tp` breaks.
int broken_by(const SmallSizes& s, int tp) {
  const Index padded = (s.vocab + 63) / 64 * 64;
  const bool kv = s.kv_heads % tp == 0 || (s.kv_heads < tp && tp % s.kv_heads == 0);
  return (s.heads % tp != 0) + !kv + (s.intermediate % tp != 0) + (padded % tp != 0);
}

CheckRequest all_readings(int tp) {
  CheckRequest request;
  request.tp = {tp};
  request.statics = request.exact = request.numeric = request.readings_chosen = true;
  request.full = true;  // so small that the exact reading needs no smaller shape
  request.output.quiet = true;
  return request;
}

void require_all_passed(const CheckRun& run) {
  REQUIRE(run.broken.empty());
  CHECK_FALSE(run.first);
  // The embedding, two layers alike (one prefill, one decode), norm, head, and the whole.
  std::vector<std::string> stages;
  for (const cli::StageResult& stage : run.stages) {
    stages.push_back(stage.stage);
    for (const CheckResult& c : stage.checks) {
      CAPTURE(stage.stage, c.id, c.message);
      CHECK(c.findings.empty());
      CHECK(c.result != Outcome::fail);
    }
  }
  CHECK(stages == std::vector<std::string>{"embed_tokens", "layers.0", "layers.0 decode", "norm",
                                           "lm_head", "model"});
  for (const Reading reading : {Reading::statics, Reading::exact, Reading::numeric})
    CHECK(run.outcome(reading) == Outcome::pass);
}

}  // namespace

TEST_CASE("plan sweep: every plan passes at every tp to 16 and refuses the others with reasons",
          "[command]") {
  for (const Family& family : families) {
    const auto at = static_cast<int>(&family - families);
    int checked = 0, refused = 0;
    for (int target = 1; target <= most_tp; ++target) {
      const SmallSizes sizes = sizes_for(target, (target + at) % 3, family);
      const nlohmann::json config = config_of(family, sizes);
      CAPTURE(family.model, target, config.dump());
      const TempDir folder;
      const CheckedModel model =
          cli::open_checked_model(folder.write("config.json", config.dump()).string(), "");
      REQUIRE(model.broken(target).empty());
      const CheckOutcome outcome = cli::check(all_readings(target), model);
      REQUIRE(outcome.runs.size() == 1);
      require_all_passed(outcome.runs.front());
      ++checked;
      for (int tp = 1; tp <= most_tp; ++tp) {
        CAPTURE(tp);
        const auto rules = static_cast<std::size_t>(broken_by(sizes, tp));
        CHECK(model.broken(tp).size() == rules);
        if (rules == 0) continue;
        ++refused;
        try {
          (void)cli::check(all_readings(tp), model);
          FAIL("a tp that breaks rules was run");
        } catch (const LayoutError& e) {
          CHECK(e.violations().size() == rules);
          CHECK(std::string(e.what()).find("tp can be 1") != std::string::npos);
        }
      }
    }
    CHECK(checked == most_tp);
    CHECK(refused > 100);
  }
}

}  // namespace tpsim::test::plan_sweep_tests
