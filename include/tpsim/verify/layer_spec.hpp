// SPDX-License-Identifier: MIT
// Which layer to verify, with which sizes and options: the library's form of the command's request.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <tpsim/layers/linear_options.hpp>

namespace tpsim {

/// One layer of the linear family, or the gated MLP. Sizes that a layer does not use are ignored.
struct LayerSpec {
  std::string layer = "qkv";  ///< column, row, merged, qkv, replicated, mlp
  int tp = 1;
  Index tokens = 16;

  Index in = 0, out = 0;          ///< column, row, replicated, merged (in)
  std::vector<MergedPart> parts;  ///< merged; mlp has gate and up of `intermediate` rows
  QkvShape qkv;                   ///< qkv; `hidden` also of mlp
  Index intermediate = 0;         ///< mlp

  bool bias = false;
  bool skip_bias_add = false;
  bool gather_output = false;     ///< column, merged
  bool input_is_parallel = true;  ///< row
  bool reduce_results = true;     ///< row

  /// Order of a fused tensor on disk (qkv, merged, mlp's gate_up); "" when the parts are separate.
  std::string disk;
  /// Put before "weight" and "bias" in names: "o_proj."; "" for the layer's own choice.
  std::string prefix;
  /// Numbers of the checkpoint's tensors by their name here ("q_proj.weight", "weight",
  /// "qkv_proj.weight" when fused); a tensor without any is generated.
  std::map<std::string, std::shared_ptr<const Values>> values;
};

/// The parts of an MLP's merged layer.
[[nodiscard]] inline std::vector<MergedPart> gate_up_parts(const LayerSpec& s) {
  return {{"gate", s.intermediate}, {"up", s.intermediate}};
}

/// The layers that exist, in the order in which they are listed.
[[nodiscard]] inline const std::vector<std::string>& layer_names() {
  static const std::vector<std::string> names{"column", "row",        "merged",
                                              "qkv",    "replicated", "mlp"};
  return names;
}

/// Every rule that the sizes, options and tp break; empty means legal.
[[nodiscard]] inline std::vector<Violation> violations(const LayerSpec& s) {
  const ColumnOptions column{s.bias, s.skip_bias_add, s.gather_output};
  const RowOptions row{s.bias, s.skip_bias_add, s.input_is_parallel, s.reduce_results};
  const Index tp = std::max(s.tp, 1);  // a tp below 1 is told by itself
  std::vector<Violation> v;
  const auto positive = [&](Index n, const std::string& what) {
    if (n <= 0)
      v.push_back({"divide", what + " is " + std::to_string(n) + ", it must be positive"});
  };
  if (s.layer == "column")
    v = column_violations(s.in, s.out, column, tp);
  else if (s.layer == "row")
    v = row_violations(s.in, s.out, row, tp);
  else if (s.layer == "merged")
    v = merged_violations(s.in, s.parts, column, tp);
  else if (s.layer == "qkv")
    v = qkv_violations(s.qkv, tp);
  else if (s.layer == "replicated")
    v = linear_violations(s.in, s.out);
  else if (s.layer == "mlp") {
    v = merged_violations(1, gate_up_parts(s), {}, tp);
    positive(s.qkv.hidden, "hidden");
  } else {
    v.push_back({"names", "there is no layer '" + s.layer + "'"});
  }
  positive(s.tp, "tp");
  positive(s.tokens, "tokens");
  return v;
}

/// Every tp up to `most` that the layer can have, in order.
[[nodiscard]] inline std::vector<int> legal_tp(LayerSpec s, int most) {
  std::vector<int> legal;
  for (s.tp = 1; s.tp <= most; ++s.tp)
    if (violations(s).empty()) legal.push_back(s.tp);
  return legal;
}

}  // namespace tpsim
