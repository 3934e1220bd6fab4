// SPDX-License-Identifier: MIT
// One case of a property: a layer with its shape and options, and what its numbers follow from.
#pragma once

#include <any>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include <tpsim/verify/replay.hpp>

namespace tpsim::properties {

struct Case {
  LayerSpec spec;            ///< of a user's module: layer (its name), tp and tokens alone
  DType dtype = DType::f32;  ///< of the numeric readings: f32, bf16 or f16
  std::uint64_t seed = 1;    ///< of weights, inputs and schedules
  std::any shape = {};     ///< of a user's module, in its own type; empty for the library's layers
  std::string sizes = {};  ///< the same as text: its plan's axes
};

/// "tp 2  heads 2  kv-heads 2  head-dim 1  hidden 1  tokens 1": the sizes and options in use, in
/// the words of the command line, or of the plan's axes.
[[nodiscard]] inline std::string describe(const Case& c) {
  std::string out;
  if (c.shape.has_value()) {
    out = "tp " + std::to_string(c.spec.tp) + "  " + c.sizes + "  tokens " +
          std::to_string(c.spec.tokens);
    if (c.seed != 1) out += "  seed " + std::to_string(c.seed);
    if (c.dtype != DType::f32) out += "  dtype " + std::string(name(c.dtype));
    return out;
  }
  std::vector<std::string> words = replay_command(c.spec, "", c.seed);
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "--layer") {
      ++i;  // the property's name has it
      continue;
    }
    const bool option = words[i].starts_with("--");
    out += (out.empty() ? "" : option ? "  " : " ") + (option ? words[i].substr(2) : words[i]);
  }
  if (c.dtype != DType::f32) out += "  dtype " + std::string(name(c.dtype));
  return out;
}

/// The command line that runs the same case: `tpsim --tp 2 --layer qkv ...`; "" for a user's
/// module, which the program does not know.
[[nodiscard]] inline std::string command_line(const Case& c, const std::string& fault = {}) {
  if (c.shape.has_value()) return "";
  std::vector<std::string> words = replay_command(c.spec, fault, c.seed);
  if (c.dtype != DType::f32) {
    words.emplace_back("--dtype");
    words.emplace_back(name(c.dtype));
  }
  return shell_line(words);
}

/// For RapidCheck's own messages.
inline void showValue(const Case& c, std::ostream& os) {
  os << c.spec.layer << ": " << describe(c);
}

}  // namespace tpsim::properties
