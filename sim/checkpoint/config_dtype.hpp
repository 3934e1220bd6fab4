// SPDX-License-Identifier: MIT
// The dtype that a config.json gives its weights.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>

#include <tpsim/layout/full_tensor.hpp>

#include "config_expression.hpp"

namespace tpsim::checkpoint_detail {

/// `dtype`, or `torch_dtype` as older files call it; nothing when there is none.
[[nodiscard]] inline std::optional<DType> read_config_dtype(ConfigEvaluator& in) {
  constexpr std::array<std::pair<const char*, DType>, 4> known{{{"float64", DType::f64},
                                                                {"float32", DType::f32},
                                                                {"bfloat16", DType::bf16},
                                                                {"float16", DType::f16}}};
  std::optional<DType> found;
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (in.find(key) == nullptr) continue;
    const std::string word = in.word(key, "dtype", {});
    bool legal = word.empty();  // told already
    for (const auto& [name, dtype] : known)
      if (word == name) {
        legal = true;
        if (found && *found != dtype)
          in.problem(fmt::format("torch_dtype {} contradicts dtype", word));
        else
          found = dtype;
      }
    if (!legal)
      in.problem(fmt::format("{} {} is unknown; known: float64, float32, bfloat16, float16", key,
                             shown(word)));
  }
  return found;
}

}  // namespace tpsim::checkpoint_detail
