// SPDX-License-Identifier: MIT
#include "sim/synth_command.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <csignal>
#include <cstdio>

#include <fmt/format.h>

#include "sim/commands.hpp"
#include "sim/progress.hpp"
#include "sim/shared_options.hpp"
#include "sim/synth_values.hpp"
#include "sim/terminal.hpp"
#include "sim/text.hpp"

namespace tpsim::cli {
namespace {

constexpr Index largest_shard = Index{1} << 53;

// "5GB", "500 MB" and "2GiB" as bytes; GB are 10^9 bytes, as in transformers.
Index parse_bytes(const std::string& text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  std::string unit;
  for (const char c : text.substr(digits))
    if (c != ' ') unit += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  Index scale = 1;
  if (!unit.empty() && unit != "B") {
    const std::size_t power = std::string_view("KMGT").find(unit[0]);
    const bool binary = unit.substr(1) == "IB";
    if (power == std::string_view::npos || (unit.substr(1) != "B" && !binary) || digits == 0)
      throw UsageError(fmt::format("--max-shard-size '{}' is no size", text.substr(0, 40)),
                       "for example 5GB, 500MB, 2GiB or a number of bytes");
    for (std::size_t i = 0; i <= power; ++i) scale *= binary ? 1024 : 1000;
  }
  return scale * number("max-shard-size", text.substr(0, digits), 1, largest_shard / scale);
}

volatile std::sig_atomic_t stopped_by = 0;
struct Stopped {};

// While it lives, a signal that would end the program is only noted, so that it ends without
// leaving half a checkpoint behind. A file over the system's limit is an error of write().
class StopSignals {
 public:
  StopSignals() {
    stopped_by = 0;
    struct sigaction note {};
    note.sa_handler = [](int signal) { stopped_by = signal; };
    for (std::size_t i = 0; i < signals.size(); ++i) {
      sigaction(signals[i], nullptr, &before_[i]);
      if (before_[i].sa_handler != SIG_IGN) sigaction(signals[i], &note, nullptr);
    }
    before_limit_ = std::signal(SIGXFSZ, SIG_IGN);
  }
  ~StopSignals() {
    for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &before_[i], nullptr);
    std::signal(SIGXFSZ, before_limit_);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  static constexpr std::array<int, 3> signals{SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, 3> before_{};
  void (*before_limit_)(int) = nullptr;
};

}  // namespace

SynthRequest parse_synth(const std::string& model, const Given& given) {
  std::vector<std::string> own = synth_sizes();
  for (const char* more : {"out", "plan", "dtype", "seed", "max-shard-size", "force"})
    own.push_back(more);
  for (const auto& [name, value] : given)
    if (std::find(own.begin(), own.end(), name) == own.end() && name != "json" && name != "color" &&
        name != "quiet" && name != "verbose")
      throw UsageError(
          fmt::format("--{} is no option of 'synth'", name),
          fmt::format("'synth' takes --{}, --json, --quiet and --verbose", fmt::join(own, ", --")));
  const char* example = "for example: tpsim synth llama-3-8b --layers 2 --out DIR";
  if (model.empty()) throw UsageError("'tpsim synth' needs a model", example);
  if (given.count("out") == 0) throw UsageError("'tpsim synth' needs --out DIR", example);
  SynthRequest r;
  r.model = model;
  r.out = given.at("out");
  if (const auto it = given.find("plan"); it != given.end()) r.plan_file = it->second;
  for (const std::string& size : synth_sizes())
    if (const auto it = given.find(size); it != given.end())
      r.sizes[size] = number(size, it->second, 1, largest_size);
  r.dtype = parse_dtype(given, {DType::f64, DType::f32, DType::bf16, DType::f16},
                        "dtypes of a checkpoint are");
  r.seed = parse_seed(given);
  if (const auto it = given.find("max-shard-size"); it != given.end())
    r.max_shard_size = parse_bytes(it->second);
  r.force = given.count("force") != 0;
  return r;
}

SynthResult synth(const SynthRequest& request) {
  SynthResult result;
  result.model = synth_model(request);
  // What may be absent from a checkpoint is absent: the head of a tied model.
  std::vector<ModelTensor> chosen = result.model.bound.tensors;
  std::erase_if(chosen, [](const ModelTensor& t) { return t.optional; });
  std::vector<NewTensor> tensors;
  for (const ModelTensor& t : chosen) tensors.push_back({t.name, t.shape, result.model.dtype});
  const SynthValues values(chosen, result.model.dtype, request.seed);
  const auto fill = [&](std::size_t tensor, Index element, std::span<std::byte> out) {
    if (stopped_by != 0) throw Stopped();
    values.fill(tensor, element, out);
  };
  result.files = write_checkpoint(request.out, result.model.config, tensors, fill,
                                  {request.max_shard_size, request.force});
  result.tensors = static_cast<Index>(tensors.size());
  for (const NewTensor& t : tensors)
    result.parameters += t.shape.size(), result.tensor_bytes += t.bytes();
  for (const WrittenFile& f : result.files) result.bytes += f.bytes;
  return result;
}

int run_synth(const SynthRequest& request) {
  const auto start = std::chrono::steady_clock::now();
  SynthResult result;
  try {
    const StopSignals stop;
    const Progress progress(stderr, show_progress(request.output), "writing");
    result = synth(request);
  } catch (const Stopped&) {  // nothing is left; now the signal does what it would have done
    std::raise(stopped_by);
    return 128 + stopped_by;
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  std::fputs((request.output.json ? synth_json(request, result, elapsed.count()) + "\n"
                                  : synth_text(request, result, elapsed.count()))
                 .c_str(),
             stdout);
  return 0;
}

}  // namespace tpsim::cli
