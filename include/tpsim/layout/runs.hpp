// SPDX-License-Identifier: MIT
// An ordered sequence of indices, kept as arithmetic runs. Order and repetition matter: this is
// never a set.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <tpsim/core/shape.hpp>

namespace tpsim {

/// The indices begin, begin + stride, ..., `length` of them.
struct Run {
  Index begin = 0;
  Index length = 0;
  Index stride = 1;

  [[nodiscard]] constexpr Index at(Index i) const { return begin + i * stride; }
  [[nodiscard]] constexpr Index last() const { return at(length - 1); }
};

/// A sequence of indices as runs; neighbours that continue each other are merged on append.
/// @post equality compares the sequences element by element, however they are cut into runs
class Runs {
 public:
  Runs() = default;
  /// begin, begin + 1, ..., end - 1
  [[nodiscard]] static Runs range(Index begin, Index end) {
    Runs r;
    r.append({begin, end - begin, 1});
    return r;
  }

  void append(Run run) {
    if (run.length <= 0) return;
    if (run.length == 1) run.stride = 1;
    size_ += run.length;
    if (!runs_.empty() && extend(runs_.back(), run)) return;
    runs_.push_back(run);
  }
  void append(const Runs& more) {
    for (const Run& run : more.runs_) append(run);
  }

  [[nodiscard]] Index size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] const std::vector<Run>& runs() const { return runs_; }
  [[nodiscard]] auto begin() const { return runs_.begin(); }
  [[nodiscard]] auto end() const { return runs_.end(); }

  /// Element i, 0 <= i < size(). Linear in the number of runs.
  [[nodiscard]] Index operator[](Index i) const {
    for (const Run& run : runs_) {
      if (i < run.length) return run.at(i);
      i -= run.length;
    }
    return -1;
  }

  /// Elements [start, start + length) of the sequence.
  [[nodiscard]] Runs slice(Index start, Index length) const {
    Runs out;
    for (const Run& run : runs_) {
      if (length <= 0) break;
      const Index skip = std::min(start, run.length);
      const Index take = std::min(length, run.length - skip);
      out.append({run.at(skip), take, run.stride});
      start -= skip;
      length -= take;
    }
    return out;
  }

  /// The elements at `positions`, in their order: composition of the two sequences.
  [[nodiscard]] Runs select(const Runs& positions) const {
    Runs out;
    for (const Run& p : positions) {
      if (runs_.size() == 1) {
        out.append({runs_[0].at(p.begin), p.length, runs_[0].stride * p.stride});
      } else if (p.stride == 1) {
        out.append(slice(p.begin, p.length));
      } else {
        for (Index i = 0; i < p.length; ++i) out.append({(*this)[p.at(i)], 1, 1});
      }
    }
    return out;
  }

  /// Does the sequence read begin, begin + 1, ..., end - 1?
  [[nodiscard]] bool is_range(Index begin, Index end) const {
    if (size_ != end - begin) return false;
    Index next = begin;
    for (const Run& run : runs_) {
      if (run.begin != next || (run.length > 1 && run.stride != 1)) return false;
      next += run.length;
    }
    return true;
  }

  /// "[0, 1024)", "[0, 4) [8, 12)", or "0:16:2" for a stride; at most `most` runs are written out.
  [[nodiscard]] std::string str(std::size_t most = 4) const {
    std::string out;
    for (std::size_t i = 0; i < runs_.size() && i < most; ++i) {
      const Run& r = runs_[i];
      if (i > 0) out += ' ';
      out += r.stride == 1
                 ? "[" + std::to_string(r.begin) + ", " + std::to_string(r.begin + r.length) + ")"
                 : std::to_string(r.begin) + ":" + std::to_string(r.last() + 1) + ":" +
                       std::to_string(r.stride);
    }
    if (runs_.size() > most) out += " ... (" + std::to_string(runs_.size()) + " runs)";
    return runs_.empty() ? "none" : out;
  }

  friend bool operator==(const Runs& a, const Runs& b) { return first_difference(a, b) < 0; }

  /// Position of the first differing element (or of the end of the shorter one); -1 when equal.
  [[nodiscard]] static Index first_difference(const Runs& a, const Runs& b) {
    std::size_t ia = 0, ib = 0;
    Index oa = 0, ob = 0, position = 0;
    while (ia < a.runs_.size() && ib < b.runs_.size()) {
      const Run& ra = a.runs_[ia];
      const Run& rb = b.runs_[ib];
      if (ra.at(oa) != rb.at(ob)) return position;
      Index both = std::min(ra.length - oa, rb.length - ob);
      if (both > 1 && ra.stride != rb.stride) both = 1;
      position += both;
      if ((oa += both) == ra.length) ++ia, oa = 0;
      if ((ob += both) == rb.length) ++ib, ob = 0;
    }
    return a.size_ == b.size_ ? -1 : position;
  }

 private:
  // Grows `last` by `run` when the result is one arithmetic run; a rising pair of single indices
  // starts one, so that 0, 2, 4 becomes one run of stride 2.
  static bool extend(Run& last, const Run& run) {
    const Index step = run.begin - last.last();
    const bool fits_last = last.length == 1 ? step > 0 : step == last.stride;
    const bool fits_run = run.length == 1 || step == run.stride;
    if (!fits_last || !fits_run || (last.length == 1 && run.length == 1 && step <= 0)) return false;
    last.stride = step;
    last.length += run.length;
    return true;
  }

  std::vector<Run> runs_;
  Index size_ = 0;
};

}  // namespace tpsim
