// SPDX-License-Identifier: MIT
// Plans: what tpsim has to know about a module: its checkpoint's tensors, how each is cut, and what
// goes in and comes out.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tpsim/layout/axes.hpp>
#include <tpsim/layout/cut.hpp>
#include <tpsim/layout/row_layout.hpp>

namespace tpsim {

/// One tensor of the checkpoint.
struct PlanTensor {
  std::string name;  ///< as the checkpoint has it: "q_proj.weight"
  /// Its rows on disk, a layout expression: "q:kv*g*d", "q:kv*g*d + k:kv*d + v:kv*d", "H". A label
  /// names a part of a parameter that several tensors fill.
  std::string rows;
  std::string cols = {};             ///< "H", "kv*g*d"; "" for a bias
  std::string style = "replicated";  ///< "column": rows are cut, "row": columns, "replicated"
  /// The rule, "kv*g even"; "q:kv*g even, k:kv replicated, v:kv replicated" when the parts of a
  /// fused tensor have rules of their own, and then in the order of the parts in the parameter.
  /// Parameters that are cut along the same axes meet in the forward pass: a rank must hold the
  /// same entries of all of them (gate, up and the columns of down; a weight and its bias).
  std::string cut = {};
  /// The layer whose parameter it fills, when that has another name: q_proj.weight into "qkv_proj"
  /// fills qkv_proj.weight. Tensors that go into one parameter lie there one below the other, in
  /// the order of the plan.
  std::string into = {};
  /// Instead of `into`, the whole path of that layer, when the checkpoint has names of its own:
  /// attention.wqkv.weight with "self_attn.qkv_proj" fills self_attn.qkv_proj.weight, and its part
  /// q is self_attn.q_proj.weight; attention.wo.weight with "self_attn.o_proj" is
  /// self_attn.o_proj.weight.
  std::string fills = {};
};

/// An activation: its columns, and the ranks' part of them.
struct PlanValue {
  /// "H": whole on every rank. "i even": cut, its columns are the axes of the cut.
  PlanValue(const char* text) : cols(text) {}             // NOLINT(google-explicit-constructor)
  PlanValue(std::string text) : cols(std::move(text)) {}  // NOLINT(google-explicit-constructor)
  /// Columns with more axes than are cut: {"kv*g*d", "kv*g even"}.
  PlanValue(std::string columns, std::string rule)
      : cols(std::move(columns)), cut(std::move(rule)) {}
  std::string cols, cut;
};

/// A module with its sizes, in the words of the plan files:
///
///     {.axes = {{"H", 8}, {"i", 12}},
///      .tensors = {{"up_proj.weight", "i", "H", "column", "i even"},
///                  {"down_proj.weight", "H", "i", "row", "i even"}},
///      .input = "H", .outputs = {"H"}}
struct Plan {
  std::string name = "module";  ///< in reports
  Axes axes = {};
  std::vector<PlanTensor> tensors = {};
  PlanValue input = "";
  std::vector<PlanValue> outputs = {};  ///< one for each result of full(), side by side on a rank
  /// No nonlinear function and no product of activations: integers stay small integers.
  bool linear = false;
  /// What the whole group calls at tp > 1, in order: {"all_reduce"}; nothing: not judged.
  std::optional<std::vector<std::string>> collectives = {};
};

/// A part of a parameter: one logical tensor, its canonical axes, and the rule that cuts it.
struct PlanPart {
  std::string label;   ///< "q"; "" when there is one part without a label
  std::string tensor;  ///< the logical tensor: what full() reads
  std::vector<AxisExtent> axes;
  Cut cut;  ///< of the rows (column) or of the columns (row); `whole` when replicated
  /// Rows or columns that no cut separates: d of kv*g*d under "kv*g even".
  [[nodiscard]] Index unit() const;
};
/// One tensor, evaluated.
struct BoundTensor {
  std::string name, param;
  std::optional<int> tp_dim;
  RowLayout layout{{}};            ///< disk rows of every part
  std::vector<PlanPart> parts;     ///< one for each part of `layout`, in its order
  std::vector<std::size_t> order;  ///< indices of `parts` as the parameter has them
  std::vector<AxisExtent> cols;
  int rank = 2;  ///< 1 for a bias
  [[nodiscard]] Shape shape_of(Index rows) const;
};
/// One activation, evaluated.
struct BoundValue {
  std::vector<AxisExtent> cols;
  Cut cut;
  [[nodiscard]] Index width() const;
};
/// A plan whose expressions have been worked out.
struct BoundPlan {
  Plan plan;
  std::vector<BoundTensor> tensors;
  BoundValue input;
  std::vector<BoundValue> outputs;
};

/// @throws LayoutError with everything that is wrong with the plan at once: `names` (an axis
/// without
///   extent, an unknown style, a name or a label used twice, a missing label), `cover` (an extent
///   below 1, parts that do not lie together), and texts that cannot be read
[[nodiscard]] BoundPlan bind_plan(const Plan& plan);

/// Every rule that `tp` breaks, each once with the tensors concerned; empty means legal.
[[nodiscard]] std::vector<Violation> violations(const BoundPlan& plan, int tp);
/// Every tp up to `most` that the plan can have, in order.
[[nodiscard]] std::vector<int> legal_tp(const BoundPlan& plan, int most);
/// @throws LayoutError with every violated rule, and the legal tp in the hint
void require_legal(const BoundPlan& plan, int tp);

/// "H 8  i 12": the axes with their extents.
[[nodiscard]] inline std::string describe(const Axes& axes) {
  std::string out;
  for (const auto& [name, extent] : axes)
    out += (out.empty() ? "" : "  ") + name + " " + std::to_string(extent);
  return out;
}

}  // namespace tpsim

#include <tpsim/layout/detail/plan_binding.hpp>
