// SPDX-License-Identifier: MIT
// What a choice was made among: columns of a value, and the ids that they go by.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <tpsim/core/shape.hpp>

namespace tpsim {

/// A set: a column that is there twice under one id makes no other choice. Of equal columns under
/// several ids the smallest id wins, which is a choice of its own.
class Candidates {
 public:
  /// Columns [column, column + length) under the ids [id, id + length); `zeros`: no columns of the
  /// value, but that many zeros.
  struct Run {
    Index id = 0, length = 0, column = 0;
    bool zeros = false;
    friend bool operator==(const Run&, const Run&) = default;
  };

  void add(Run run) {
    if (run.length <= 0) return;
    if (run.zeros) run.column = 0;
    runs_.push_back(run);
    normalize();
  }
  void add(const Candidates& more) {
    runs_.insert(runs_.end(), more.runs_.begin(), more.runs_.end());
    normalize();
  }
  /// By id.
  [[nodiscard]] const std::vector<Run>& runs() const { return runs_; }
  /// Every one of `width` columns under its own number, and nothing else?
  [[nodiscard]] bool are_all(Index width) const {
    return runs_.size() == 1 && runs_[0] == Run{0, width, 0, false};
  }
  /// "[0, 26), [26, 52) as ids [0, 26), zeros as ids [101, 104)". Different sets read differently.
  [[nodiscard]] std::string str() const {
    const auto range = [](Index begin, Index length) {
      return "[" + std::to_string(begin) + ", " + std::to_string(begin + length) + ")";
    };
    std::string out;
    for (const Run& r : runs_) {
      out += (out.empty() ? "" : ", ") + (r.zeros ? "zeros" : range(r.column, r.length));
      if (r.zeros || r.id != r.column) out += " as ids " + range(r.id, r.length);
    }
    return out.empty() ? "none" : out;
  }

 private:
  // Runs that overlap or touch at one distance of column and id become one.
  void normalize() {
    const auto distance = [](const Run& r) { return r.zeros ? 0 : r.column - r.id; };
    std::sort(runs_.begin(), runs_.end(), [&](const Run& a, const Run& b) {
      if (a.zeros != b.zeros) return b.zeros;
      if (distance(a) != distance(b)) return distance(a) < distance(b);
      return a.id < b.id;
    });
    std::vector<Run> out;
    for (const Run& r : runs_) {
      Run* last = out.empty() ? nullptr : &out.back();
      if (last != nullptr && last->zeros == r.zeros && distance(*last) == distance(r) &&
          r.id <= last->id + last->length)
        last->length = std::max(last->length, r.id + r.length - last->id);
      else
        out.push_back(r);
    }
    std::sort(out.begin(), out.end(), [](const Run& a, const Run& b) {
      return a.id != b.id ? a.id < b.id : a.zeros != b.zeros ? b.zeros : a.column < b.column;
    });
    runs_ = std::move(out);
  }

  std::vector<Run> runs_;
};

}  // namespace tpsim
