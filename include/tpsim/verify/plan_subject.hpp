// SPDX-License-Identifier: MIT
// From a plan to what the verifier compares with: the checkpoint's tensors, and what every rank
// must hold, receive and return.
#pragma once

#include <map>

#include <tpsim/comm/communicator.hpp>
#include <tpsim/core/text.hpp>
#include <tpsim/layout/plan.hpp>
#include <tpsim/layout/row_identity.hpp>
#include <tpsim/verify/subject.hpp>

namespace tpsim {

/// Numbers of the checkpoint's tensors by name; a tensor without any is generated.
using TensorValues = std::map<std::string, std::shared_ptr<const Values>>;

namespace detail {

/// A tensor of the checkpoint with its layout; `logical` what its parts stand for.
[[nodiscard]] inline DiskTensor disk_tensor(const std::string& name, Shape shape, RowLayout layout,
                                            std::vector<Logical> logical, const std::string& param,
                                            const TensorValues& values) {
  auto stored = std::make_shared<StoredTensor>();
  stored->name = name;
  stored->shape = shape;
  std::size_t next = 0;
  stored->identity = row_identity(layout, [&](std::string_view) { return logical[next++]; });
  if (const auto it = values.find(name); it != values.end()) stored->values = it->second;
  return {std::move(stored), std::move(layout), std::move(logical), param};
}

class PlanDeclaration {
 public:
  PlanDeclaration(Subject& subject, const BoundPlan& plan, const TensorValues& values)
      : subject_(subject), plan_(plan), values_(values) {}

  void fill() {
    subject_.layer = plan_.plan.name;
    subject_.linear = plan_.plan.linear;
    for (const BoundTensor& t : plan_.tensors) tensor(t);
    for (auto& [axes, group] : meeting_)
      if (group.size() > 1) subject_.partners.push_back(group);
    subject_.input_width = plan_.input.width();
    subject_.input_columns = cut(plan_.input.cut, plan_.input.cols);
    heads();
    for (std::size_t k = 0; k < plan_.outputs.size(); ++k) {
      DeclaredOutput out{k, cut(plan_.outputs[k].cut, plan_.outputs[k].cols)};
      if (plan_.outputs.size() > 1) out.label = "output " + std::to_string(k);
      subject_.outputs.push_back(std::move(out));
    }
    collectives();
  }

 private:
  /// [rank]: entries under a legal cut.
  [[nodiscard]] std::vector<Runs> cut(const Cut& rule, const std::vector<AxisExtent>& axes) const {
    std::vector<Runs> out;
    for (int r = 0; r < subject_.tp; ++r) out.push_back(cut_rows(rule, axes, subject_.tp, r).rows);
    return out;
  }
  [[nodiscard]] std::vector<Runs> whole(Index n) const {
    return std::vector<Runs>(static_cast<std::size_t>(subject_.tp), Runs::range(0, n));
  }

  void tensor(const BoundTensor& t) {
    std::vector<Logical> logical;
    for (std::size_t k = 0; k < t.parts.size(); ++k)
      logical.push_back(std::make_shared<LogicalTensor>(
          t.parts[k].tensor, t.shape_of(t.layout.parts()[k].disk_rows.size())));
    const Shape shape = t.shape_of(t.layout.rows());
    subject_.tensors.push_back(disk_tensor(t.name, shape, t.layout, logical, t.param, values_));

    DeclaredParam& param = param_of(t);
    for (const std::size_t k : t.order) {
      const PlanPart& part = t.parts[k];
      DeclaredPart declared{
          logical[k], part.label, whole(logical[k]->shape.rows()), whole(logical[k]->shape.cols()),
          1,          ""};
      if (t.tp_dim == 0) {
        declared.rows = cut(part.cut, part.axes);
        declared.granule = part.unit();
        for (const std::string& axis : part.cut.axes)
          if (declared.granule > 1)
            declared.granule_name += (declared.granule_name.empty() ? "" : "*") + axis;
      }
      if (t.tp_dim == 1) declared.cols = cut(part.cut, part.axes);
      param.full_shape =
          param.full_shape.with(0, param.full_shape.rows() + logical[k]->shape.rows());
      meets(part, {param.name, param.parts.size(), t.tp_dim.value_or(0), part.unit()});
      param.parts.push_back(std::move(declared));
    }
  }

  [[nodiscard]] DeclaredParam& param_of(const BoundTensor& t) {
    for (DeclaredParam& p : subject_.params)
      if (p.name == t.param) return p;
    subject_.params.push_back({t.param, t.tp_dim, t.shape_of(0), {}});
    return subject_.params.back();
  }

  /// Both rules give a rank the same entries of the same axes, wherever both are legal.
  void meets(const PlanPart& part, Partner partner) {
    if (part.cut.rule == CutRule::whole) return;
    for (auto& [axes, group] : meeting_)
      if (axes == part.cut.axes) return group.push_back(std::move(partner));
    meeting_.push_back({part.cut.axes, {std::move(partner)}});
  }

  /// Parts q, k and v make heads when k and v are cut along the outer axes of q.
  void heads() {
    const PlanPart* found[3] = {nullptr, nullptr, nullptr};
    for (const BoundTensor& t : plan_.tensors)
      for (const PlanPart& part : t.parts)
        for (std::size_t k = 0; k < 3; ++k)
          if (t.rank == 2 && t.tp_dim == 0 && part.label == std::string(1, "qkv"[k])) {
            if (found[k] != nullptr) return;  // two attentions: neither is the module's
            found[k] = &part;
          }
    const auto& [q, k, v] = found;
    if (q == nullptr || k == nullptr || v == nullptr) return;
    const std::vector<std::string>&outer = k->cut.axes, &all = q->cut.axes;
    if (v->cut.axes != outer || k->unit() != q->unit() || outer.empty() ||
        outer.size() > all.size() || !std::equal(outer.begin(), outer.end(), all.begin()))
      return;
    subject_.heads = QkvShape{plan_.input.width(), q->unit(), product(q->axes) / q->unit(),
                              product(k->axes) / k->unit(), v->unit()};
    for (DeclaredParam& param : subject_.params)
      for (DeclaredPart& part : param.parts)
        if (part.label == "q" || part.label == "k" || part.label == "v")
          part.granule_name = part.label == "q" ? "heads" : "kv";
  }

  /// A group of one may skip its collectives or call them: not judged.
  void collectives() {
    if (!plan_.plan.collectives) return;
    std::vector<CollectiveOp> wanted;
    for (const std::string& op : *plan_.plan.collectives) wanted.push_back(collective(op));
    if (subject_.tp > 1) subject_.collectives = std::move(wanted);
  }
  [[nodiscard]] static CollectiveOp collective(const std::string& wanted) {
    std::vector<std::string> known;
    for (int i = 0; i < static_cast<int>(CollectiveOp::split); ++i) {
      const auto op = static_cast<CollectiveOp>(i);
      if (name(op) == wanted) return op;
      known.emplace_back(name(op));
    }
    throw LayoutError("the plan cannot be used",
                      {{"names", "there is no collective '" + wanted + "'"}},
                      "collectives: " + or_list(known));
  }

  Subject& subject_;
  const BoundPlan& plan_;
  const TensorValues& values_;
  std::vector<std::pair<std::vector<std::string>, std::vector<Partner>>> meeting_;
};

}  // namespace detail

/// Fills `subject` (all but its code) for `tp` ranks. @pre the plan is legal at this tp
inline void declare_plan(Subject& subject, const BoundPlan& plan, int tp, Index tokens,
                         const TensorValues& values = {}) {
  subject.tp = tp;
  subject.tokens = tokens;
  detail::PlanDeclaration(subject, plan, values).fill();
}

}  // namespace tpsim
