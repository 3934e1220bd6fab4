// SPDX-License-Identifier: MIT
// What laws look at: what the ranks hold and return, element by element.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>

#include <tpsim/layout/memory_values.hpp>
#include <tpsim/verify/exact_reading.hpp>
#include <tpsim/verify/numeric_reading.hpp>

#include <properties/law.hpp>

namespace tpsim::properties {

/// An element of a logical tensor.
struct Element {
  Logical tensor;
  Index row = 0, col = 0;
};

/// [row][column] of a param: the element that was copied there; a null tensor where none was.
[[nodiscard]] inline std::vector<std::vector<Element>> held_elements(const HeldParam& param) {
  std::vector<std::vector<Element>> out(
      static_cast<std::size_t>(param.shape.rows()),
      std::vector<Element>(static_cast<std::size_t>(param.shape.cols())));
  for (const Piece& p : param.pieces)
    for (Index i = 0; i < p.rows; ++i)
      for (Index j = 0; j < p.cols; ++j)
        out[static_cast<std::size_t>(p.row + i)][static_cast<std::size_t>(p.col + j)] = {
            p.tensor, p.src_row + i * p.src_stride, p.src_col + j};
  return out;
}

/// The values of every param of every rank: [rank]{name -> row-major}.
using LoadedParams = std::vector<std::map<std::string, std::vector<double>>>;

/// Gives the tensors to the weight_loaders and reads the params back; nothing is rounded.
/// @param because  set to the first finding, if any
[[nodiscard]] inline LoadedParams load_params(const Subject& subject,
                                              const std::vector<DiskTensor>& tensors,
                                              std::string& because) {
  using B = Subject::Numeric;
  LoadedParams out(static_cast<std::size_t>(subject.tp));
  const auto runs = run_ranks<B>(
      subject, tensors, [](int rank) { return std::make_unique<B>(rank); },
      [&](B& b) { return b.activation("x", Shape(1, subject.input_width)); },
      [&](std::size_t r, B&, ModuleOn<B>& module) {
        for (const auto& [name, param] : module.params())
          for (Index i = 0; i < param->shape.rows(); ++i)
            for (Index j = 0; j < param->shape.cols(); ++j) out[r][name].push_back(param->at(i, j));
      });
  if (!runs.findings.empty()) because = runs.findings.front().message;
  return out;
}

/// A number for every element of every logical tensor: all different, all exact in float.
class ElementTags {
 public:
  explicit ElementTags(const Subject& subject) {
    for (const DiskTensor& t : subject.tensors)
      for (const Logical& tensor : t.logical) {
        if (!first_.emplace(tensor->name, next_).second) continue;
        next_ += tensor->shape.size();
      }
  }
  [[nodiscard]] float at(const LogicalTensor& tensor, Index row, Index col) const {
    return static_cast<float>(first_.at(tensor.name) + row * tensor.shape.cols() + col);
  }

 private:
  std::map<std::string, Index, std::less<>> first_;
  Index next_ = 1;
};

/// `t` with its elements' tags as numbers; `owner(row)` is the logical tensor and canonical row of
/// a stored row.
template <class OwnerOf>
[[nodiscard]] DiskTensor tagged(const DiskTensor& t, const ElementTags& tags, OwnerOf owner) {
  const Shape shape = t.stored->shape;
  std::vector<float> numbers;
  for (Index r = 0; r < shape.rows(); ++r) {
    const auto [tensor, row] = owner(r);
    for (Index c = 0; c < shape.cols(); ++c) numbers.push_back(tags.at(*tensor, row, c));
  }
  auto stored = std::make_shared<StoredTensor>(*t.stored);
  stored->values = std::make_shared<MemoryValues>(shape, std::move(numbers));
  DiskTensor out = t;
  out.stored = std::move(stored);
  return out;
}

/// As above, with the owners that the checkpoint's own declaration tells.
[[nodiscard]] inline DiskTensor tagged(const DiskTensor& t, const ElementTags& tags) {
  return tagged(t, tags, [&](Index row) {
    const Piece p = t.view().pieces(row, 1, 0, t.stored->shape.cols()).front();
    return std::pair<Logical, Index>(p.tensor, p.src_row);
  });
}

/// Where two loads differ, or "" when they are equal; `compared` grows by the elements. What both
/// left unwritten (NaN) is equal: that is another law's.
[[nodiscard]] inline std::string compare_params(const LoadedParams& a, const LoadedParams& b,
                                                Index& compared) {
  for (std::size_t r = 0; r < a.size(); ++r)
    for (const auto& [name, values] : a[r]) {
      const auto other = b[r].find(name);
      const std::string who = "rank " + std::to_string(r) + " " + name;
      if (other == b[r].end() || other->second.size() != values.size())
        return who + " has another size";
      for (std::size_t i = 0; i < values.size(); ++i) {
        ++compared;
        const bool here = !std::isnan(values[i]), there = !std::isnan(other->second[i]);
        if (here == there && (!here || values[i] == other->second[i])) continue;
        const bool unwritten = here != there;
        return who + ": element " + std::to_string(i) +
               (unwritten ? " was not written in one of them" : " differs");
      }
    }
  return "";
}

/// The checks as one verdict: the first finding, and the sum of what was compared.
[[nodiscard]] inline Verdict verdict_of(const std::vector<CheckResult>& checks,
                                        std::initializer_list<std::string_view> ids) {
  Verdict out;
  for (const CheckResult& check : checks) {
    if (std::find(ids.begin(), ids.end(), check.id) == ids.end()) continue;
    out.compared += check.compared;
    if (out.because.empty() && !check.findings.empty())
      out.because = check.findings.front().message;
  }
  return out;
}

}  // namespace tpsim::properties
