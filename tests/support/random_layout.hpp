// SPDX-License-Identifier: MIT
// Random layout expressions with their meaning written out row by row.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/layout/expression.hpp>
#include <tpsim/layout/row_identity.hpp>

namespace tpsim::test {

inline std::vector<Index> list(const Runs& runs) {
  std::vector<Index> out;
  for (const Run& run : runs)
    for (Index i = 0; i < run.length; ++i) out.push_back(run.at(i));
  return out;
}

/// A layout text and, for every disk row in order, the label that owns it. A label's rows lie on
/// disk in canonical order, so its canonical row is how often the label came before.
struct RandomLayout {
  std::string text;
  std::vector<std::string> owners;
  Axes axes{{"a", 1}, {"b", 2}, {"c", 3}, {"d", 4}};

  [[nodiscard]] std::pair<std::string, Index> meaning(Index disk_row) const {
    const auto end = owners.begin() + disk_row;
    return {*end, std::count(owners.begin(), end, *end)};
  }
};

namespace random_parts {

// A part of at most `depth` nested parentheses; labels are numbered in order.
inline RandomLayout random_part(int depth, int& label) {
  RandomLayout out;
  const std::string name = "t" + std::to_string(label);
  const bool group = depth > 0 && *rc::gen::inRange(0, 3) > 0;
  const int before = *rc::gen::inRange(0, 3), after = group ? *rc::gen::inRange(0, 2) : 0;
  Index rows_after = 1;
  std::string head, tail;
  Index times = 1;
  const auto axis = [&](Index& product) {
    const auto which = *rc::gen::inRange<std::size_t>(0, 5);
    product *= which == 4 ? 2 : static_cast<Index>(which) + 1;
    return std::string(which == 4 ? "2" : std::string(1, "abcd"[which]));
  };
  for (int i = 0; i < before; ++i) head += axis(times) + "*";
  for (int i = 0; i < after; ++i) tail += "*" + axis(rows_after);
  std::vector<std::string> inside;
  if (group) {
    const int parts = *rc::gen::inRange(1, 4);
    std::string sum;
    for (int i = 0; i < parts; ++i) {
      RandomLayout part = random_part(depth - 1, label);
      sum += (i > 0 ? " + " : "") + part.text;
      inside.insert(inside.end(), part.owners.begin(), part.owners.end());
    }
    out.text = head + "(" + sum + ")" + tail;
  } else {
    ++label;
    inside.push_back(name);
    const bool bare = head.empty() && depth < 2;
    out.text = bare ? name : name + ":" + (head.empty() ? "1" : head.substr(0, head.size() - 1));
  }
  for (Index i = 0; i < times; ++i)
    for (const std::string& owner : inside)
      for (Index j = 0; j < rows_after; ++j) out.owners.push_back(owner);
  return out;
}

}  // namespace random_parts

/// For use inside a property: every choice is drawn, so that a failure shrinks.
inline RandomLayout random_layout() {
  RandomLayout out;
  int label = 0;
  for (int parts = *rc::gen::inRange(1, 4); parts > 0; --parts) {
    RandomLayout part = random_parts::random_part(2, label);
    out.text += (out.text.empty() ? "" : " + ") + part.text;
    out.owners.insert(out.owners.end(), part.owners.begin(), part.owners.end());
  }
  return out;
}

/// A stored tensor of this layout; the label "q" stands for a logical tensor "q".
inline std::shared_ptr<const StoredTensor> stored(const RowLayout& layout, Index cols) {
  return std::make_shared<StoredTensor>(StoredTensor{
      "stored", Shape(layout.rows(), cols),
      row_identity(layout,
                   [&](std::string_view label) {
                     return std::make_shared<const LogicalTensor>(
                         std::string(label), Shape(layout.rows_of(label).size(), cols));
                   }),
      nullptr});
}

}  // namespace tpsim::test
