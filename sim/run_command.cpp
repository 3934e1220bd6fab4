// SPDX-License-Identifier: MIT
#include "sim/run_command.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include <fmt/format.h>

#include "sim/check_model.hpp"
#include "sim/checkpoint/problems.hpp"
#include "sim/commands.hpp"
#include "sim/cuda_numeric.hpp"
#include "sim/job.hpp"
#include "sim/memory.hpp"
#include "sim/model_source.hpp"
#include "sim/progress.hpp"
#include "sim/report.hpp"
#include "sim/shared_options.hpp"
#include "sim/terminal.hpp"

namespace tpsim::cli {
namespace {

using checkpoint_detail::shown;

constexpr int most_ranks = 512;
constexpr Index most_generated = 4096, most_prompt = 65536, most_id = Index{1} << 31,
                drawn_tokens = 8;
const std::vector<std::string> known_options{
    "tp",   "tokens", "generate", "plan", "dtype", "seed",  "all-reduce", "backend",
    "tf32", "comm",   "json",     "html", "junit", "color", "quiet",      "verbose"};

std::vector<Index> parse_ids(const std::string& text) {
  std::vector<Index> ids;
  for (const std::string& word : split(text, ",")) {
    ids.push_back(number("tokens", word, 0, most_id));
    if (static_cast<Index>(ids.size()) > most_prompt)
      throw UsageError(fmt::format("--tokens has more than {} ids", most_prompt));
  }
  return ids;
}

void require_folder(const std::string& model) {
  const char* hint =
      "'tpsim run' computes with weights: name a folder with config.json and safetensors files";
  std::error_code ignored;
  if (!std::filesystem::exists(model, ignored))
    throw UsageError(fmt::format("there is no folder {}", shown(model)), hint);
  if (!std::filesystem::is_directory(model, ignored))
    throw UsageError(fmt::format("{} is no folder", shown(model)), hint);
  if (!std::filesystem::exists(std::filesystem::path(model) / "config.json", ignored))
    throw UsageError(fmt::format("folder {} has no config.json", shown(model)), hint);
}

/// Ids that the vocabulary does not have, and sequences that are too long: all of it.
void require_tokens(const RunRequest& request, const CausalLMShape& shape,
                    const std::vector<Index>& prompt) {
  std::vector<Violation> broken;
  std::string unknown;
  for (std::size_t i = 0; i < prompt.size() && unknown.size() < 200; ++i)
    if (prompt[i] >= shape.vocab.vocab)
      unknown += (unknown.empty() ? "" : ", ") + std::to_string(prompt[i]);
  if (!unknown.empty())
    broken.push_back({"names", fmt::format("there is no token {}; ids go from 0 to {}", unknown,
                                           shape.vocab.vocab - 1)});
  const Index fed = static_cast<Index>(prompt.size()) + std::max<Index>(request.generate - 1, 0);
  if (shape.max_positions && fed > *shape.max_positions)
    broken.push_back(
        {"cover", fmt::format("{} tokens and {} generated ones need {} positions, the model has {}",
                              prompt.size(), request.generate, fed, *shape.max_positions)});
  if (!broken.empty())
    throw LayoutError("the model cannot be asked for these tokens", std::move(broken));
}

/// What the weights of all ranks need, once.
void require_memory_for(const RunModel& m, DType dtype) {
  double elements = 0;
  for (const ModelTensor& t : m.model.tensors)
    if (!t.optional) elements += static_cast<double>(t.shape.size());
  require_memory(elements * static_cast<double>(bytes_of(dtype)), "the weights need", "",
                 "use --dtype bf16, or a smaller model");
}

}  // namespace

bool RunResult::passed() const {
  return std::none_of(checks.begin(), checks.end(),
                      [](const auto& c) { return c.second.result == Outcome::fail; });
}

RunRequest parse_run(const std::string& model, const Given& given, RankWorld* world) {
  for (const auto& [name, value] : given)
    if (std::find(known_options.begin(), known_options.end(), name) == known_options.end())
      throw UsageError(fmt::format("--{} is no option of 'run'", name),
                       "'run' takes --tp, --tokens, --generate, --plan, --dtype, --all-reduce, "
                       "--seed, --backend, --tf32, --comm and those of output");
  const auto text = [&](const char* name, std::string fallback) {
    const auto it = given.find(name);
    return it == given.end() ? fallback : it->second;
  };
  RunRequest r;
  if (model.empty())
    throw UsageError("'tpsim run' needs a model", "for example: tpsim run DIR --tp 2 --tokens 1,2");
  read_comm(given, world, r);
  if (given.count("tp") == 0 && r.world == nullptr)
    throw UsageError("--tp is missing", "for example: tpsim run DIR --tp 2 --tokens 1,2,3");
  r.model = model;
  r.plan_file = text("plan", "");
  r.tp = given.count("tp") == 0 ? r.world->size()
                                : static_cast<int>(number("tp", given.at("tp"), 1, most_ranks));
  require_tp(r.tp, r);
  if (given.count("tokens") != 0) r.tokens = parse_ids(given.at("tokens"));
  r.generate = number("generate", text("generate", "0"), 0, most_generated);
  r.dtype =
      parse_dtype(given, {DType::f32, DType::f64, DType::bf16, DType::f16}, "dtypes of 'run' are")
          .value_or(r.dtype);
  r.all_reduce = parse_all_reduce(given);
  r.seed = parse_seed(given);
  r.backend = parse_backend(given);
  if (r.backend == "cuda" && r.dtype == DType::f64)
    throw UsageError("the CUDA backend has no f64", "dtypes of it are f32, bf16 and f16");
  r.tf32 = parse_tf32(given, r.backend, r.dtype);
  return r;
}

RunModel open_run(const RunRequest& request) {
  require_folder(request.model);
  const std::filesystem::path folder = request.model, config = folder / "config.json";
  RunModel out;
  out.model =
      bound({request.model, read_config_text(config), config.string(), folder}, request.plan_file);
  out.plan = request.plan_file.empty() ? out.model.architecture + ", built in" : request.plan_file;
  require_legal(out.model, "this model", {request.tp}, most_ranks);
  out.prompt = request.tokens;
  for (std::uint64_t i = 0; request.tokens.empty() && i < drawn_tokens; ++i)
    out.prompt.push_back(
        static_cast<Index>(mix(request.seed * drawn_tokens + i) %
                           static_cast<std::uint64_t>(out.model.shape.vocab.vocab)));
  require_tokens(request, out.model.shape, out.prompt);
  const CheckpointFiles files(folder);
  out.stored = open_model_tensors(out.model, files);
  out.tensors = static_cast<Index>(files.names().size());
  require_memory_for(out, request.dtype);
  return out;
}

int run_model(const RunRequest& request) {
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const RunModel model = open_run(request);
  const Output& o = request.output;
  for (const std::string& path : {o.html, o.junit})
    if (!path.empty() && request.reports()) require_writable(path);
  RunResult result;
  {
    const Progress progress(stderr, show_progress(o), fmt::format("running tp {}", request.tp));
    result = run(request, model);
  }
  if (!request.reports()) return 0;  // the exit status is the root's
  if (std::string note = note_on_ranks(request); !note.empty())
    result.notes.push_back(std::move(note));
  if (!o.html.empty()) write_file(o.html, run_html(request, result, elapsed()));
  if (!o.junit.empty()) {
    std::vector<LayerResult> suites;
    for (const auto& [about, check] : result.checks) {
      if (suites.empty() || suites.back().report.subject != about) {
        suites.emplace_back();
        suites.back().report.subject = about, suites.back().report.tp = request.tp;
      }
      suites.back().report.checks.push_back(check);
    }
    write_file(o.junit, junit_report({}, suites));
  }
  std::fputs(
      (o.json ? run_json(request, result, elapsed()) + "\n" : run_text(request, result, elapsed()))
          .c_str(),
      stdout);
  return result.passed() ? 0 : 1;
}

}  // namespace tpsim::cli
