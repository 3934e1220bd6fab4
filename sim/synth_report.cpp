// SPDX-License-Identifier: MIT
// What `tpsim synth` has written: as text and as the `tpsim.report/1` object.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tpsim/version.hpp>

#include "sim/synth_command.hpp"
#include "sim/text.hpp"

namespace tpsim::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t shown_files = 8;

Index axis(const BoundModel& m, const char* name) {
  const auto it = m.axes.find(name);
  return it == m.axes.end() ? 0 : it->second;
}

Json model_json(const SynthModel& m) {
  const BoundModel& b = m.bound;
  return {{"architecture", b.architecture}, {"hidden", axis(b, "H")},
          {"intermediate", axis(b, "i")},   {"layers", b.kind_of_layer.size()},
          {"heads", axis(b, "h")},          {"kv_heads", axis(b, "kv")},
          {"head_dim", axis(b, "d")},       {"vocab", axis(b, "V")},
          {"tied", b.shape.tied},           {"dtype", name(m.dtype)}};
}

std::string file_table(const SynthResult& result, bool verbose) {
  std::string out;
  std::size_t width = 0;
  for (const WrittenFile& f : result.files) width = std::max(width, f.name.size());
  const std::size_t n = verbose ? result.files.size() : std::min(shown_files, result.files.size());
  for (std::size_t i = 0; i < n; ++i) {
    const WrittenFile& f = result.files[i];
    out +=
        fmt::format("  {:<{}}{:>13}{}\n", f.name, width, binary_size(static_cast<double>(f.bytes)),
                    f.tensors > 0 ? fmt::format("{:>9} tensors", f.tensors) : "");
  }
  if (n < result.files.size())
    out += fmt::format("  and {} more files; --verbose names them\n", result.files.size() - n);
  return out;
}

}  // namespace

std::string synth_text(const SynthRequest& request, const SynthResult& result, double elapsed_s) {
  const std::string verdict =
      fmt::format("{} tensors, {} parameters, {} in {:.1f} s\n", result.tensors, result.parameters,
                  binary_size(static_cast<double>(result.bytes)), elapsed_s);
  if (request.output.quiet) return verdict;
  const BoundModel& b = result.model.bound;
  std::string out = fmt::format("tpsim {}  synth  seed {}  dtype {}  model {}\n", TPSIM_VERSION,
                                request.seed, name(result.model.dtype), request.model);
  out +=
      wrapped(fmt::format("hidden {}, intermediate {}, layers {}, heads {}, kv heads {}, head "
                          "dim {}, vocab {}{}",
                          axis(b, "H"), axis(b, "i"), b.kind_of_layer.size(), axis(b, "h"),
                          axis(b, "kv"), axis(b, "d"), axis(b, "V"), b.shape.tied ? ", tied" : ""),
              0, 0) +
      "\n";
  for (const std::string& note : result.model.notes) out += "note: " + wrapped(note, 6, 6) + "\n";
  out += fmt::format("\nwrote {}\n", request.out);
  return out + file_table(result, request.output.verbose) + verdict;
}

std::string synth_json(const SynthRequest& request, const SynthResult& result, double elapsed_s) {
  Json sizes = Json::object();
  for (const std::string& size : synth_sizes())
    if (const auto it = request.sizes.find(size); it != request.sizes.end()) {
      std::string key = size;
      std::replace(key.begin(), key.end(), '-', '_');
      sizes[key] = it->second;
    }
  Json files = Json::array();
  for (const WrittenFile& f : result.files)
    files.push_back({{"name", f.name}, {"bytes", f.bytes}, {"tensors", f.tensors}});
  Json j{{"schema", "tpsim.report/1"},
         {"version", TPSIM_VERSION},
         {"command", "synth"},
         {"result", "pass"},
         {"request",
          {{"model", request.model},
           {"out", request.out},
           {"sizes", sizes},
           {"dtype", name(result.model.dtype)},
           {"seed", request.seed},
           {"max_shard_size", request.max_shard_size},
           {"force", request.force}}},
         {"model", model_json(result.model)},
         {"files", files},
         {"written",
          {{"files", result.files.size()},
           {"bytes", result.bytes},
           {"tensors", result.tensors},
           {"parameters", result.parameters},
           {"tensor_bytes", result.tensor_bytes}}},
         {"notes", result.model.notes},
         {"elapsed_s", elapsed_s}};
  if (!request.plan_file.empty()) j["request"]["plan"] = request.plan_file;
  return j.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tpsim::cli
