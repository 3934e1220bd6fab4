// SPDX-License-Identifier: MIT
// How much of a contracted dimension has been summed so far, and how often.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/core/rational.hpp>
#include <tpsim/layout/runs.hpp>

namespace tpsim {

/// A step function on [0, extent): how often each index of the contracted dimension counts. The
/// partial product of rank r counts its own columns once and the others not at all; the sum over
/// the ranks is right when it is 1 everywhere. A value that contracts nothing has extent 1.
class Coverage {
 public:
  /// The indices [begin, end) count `coef` times; indices of no segment count 0 times.
  struct Segment {
    Index begin = 0, end = 0;
    Rational coef;
    friend bool operator==(const Segment&, const Segment&) = default;
  };

  Coverage() = default;
  /// Every index counts `coef` times.
  [[nodiscard]] static Coverage whole(Index extent, Rational coef = 1) {
    Coverage c(extent);
    c.append({0, extent, coef});
    return c;
  }
  /// Each index counts as often as the sequence names it. @pre all of it lies in [0, extent)
  [[nodiscard]] static Coverage of(const Runs& indices, Index extent) {
    Coverage c(extent);
    if (indices.runs().size() == 1 && indices.runs()[0].stride == 1) {
      const Run& run = indices.runs()[0];
      c.append({run.begin, run.begin + run.length, 1});
      return c;
    }
    std::vector<Step> steps;
    for (const Run& run : indices) {
      if (run.stride == 1) add_steps({run.begin, run.begin + run.length, 1}, steps);
      for (Index i = 0; run.stride != 1 && i < run.length; ++i)
        add_steps({run.at(i), run.at(i) + 1, 1}, steps);
    }
    c.integrate(std::move(steps));
    return c;
  }
  /// The sum of coverages of one extent; a value that is whole has any.
  [[nodiscard]] static Coverage sum(std::span<const Coverage* const> parts) {
    if (parts.size() == 1) return *parts[0];
    Coverage c(1);
    for (const Coverage* part : parts) c.extent_ = std::max(c.extent_, part->extent_);
    std::vector<Step> steps;
    for (const Coverage* part : parts)
      for (const Segment& s : part->segments_)
        add_steps(part->uniform() ? Segment{0, c.extent_, s.coef} : s, steps);
    c.integrate(std::move(steps));
    return c;
  }
  [[nodiscard]] Coverage scaled(Rational factor) const {
    Coverage c(extent_);
    for (const Segment& s : segments_) c.append({s.begin, s.end, s.coef * factor});
    return c;
  }

  /// The indices of `kept`, which has none twice, count as before, the others not at all.
  [[nodiscard]] Coverage within(const Runs& kept) const {
    Coverage c(extent_);
    const Coverage mask = of(kept, extent_);
    std::size_t first = 0;
    for (const Segment& m : mask.segments_) {
      while (first < segments_.size() && segments_[first].end <= m.begin) ++first;
      for (std::size_t i = first; i < segments_.size() && segments_[i].begin < m.end; ++i)
        c.append({std::max(m.begin, segments_[i].begin), std::min(m.end, segments_[i].end),
                  segments_[i].coef});
    }
    return c;
  }

  /// No index counts more than `limit` times.
  [[nodiscard]] Coverage at_most(Rational limit) const {
    Coverage c(extent_);
    for (const Segment& s : segments_) c.append({s.begin, s.end, limit < s.coef ? limit : s.coef});
    return c;
  }

  [[nodiscard]] Index extent() const { return extent_; }
  /// Sorted, disjoint, never 0, neighbours differ: the normal form, so that == compares functions.
  [[nodiscard]] const std::vector<Segment>& segments() const { return segments_; }
  /// The coefficient when it is the same everywhere.
  [[nodiscard]] std::optional<Rational> uniform() const {
    if (segments_.empty()) return Rational(0);
    const Segment& s = segments_.front();
    if (s.begin == 0 && s.end == extent_) return s.coef;
    return std::nullopt;
  }
  /// Is everything counted exactly once?
  [[nodiscard]] bool complete() const { return uniform() == Rational(1); }
  /// The segment that counts most often; all zero when nothing counts.
  [[nodiscard]] Segment most() const {
    Segment best{0, extent_, 0};
    for (const Segment& s : segments_)
      if (best.coef < s.coef) best = s;
    return best;
  }
  /// "[0, 512) of 1024", with "2 times [0, 4)" where an index does not count once.
  [[nodiscard]] std::string str() const {
    std::string out;
    constexpr std::size_t most_written = 4;
    for (std::size_t i = 0; i < segments_.size() && i < most_written; ++i) {
      const Segment& s = segments_[i];
      out += i == 0 ? "" : " ";
      if (s.coef != Rational(1)) out += s.coef.str() + " times ";
      out += "[" + std::to_string(s.begin) + ", " + std::to_string(s.end) + ")";
    }
    if (segments_.size() > most_written)
      out += " ... (" + std::to_string(segments_.size()) + " segments)";
    return (out.empty() ? "none" : out) + " of " + std::to_string(extent_);
  }
  friend bool operator==(const Coverage&, const Coverage&) = default;

 private:
  using Step = std::pair<Index, Rational>;
  explicit Coverage(Index extent) : extent_(extent) {}

  static void add_steps(const Segment& s, std::vector<Step>& steps) {
    steps.emplace_back(s.begin, s.coef);
    steps.emplace_back(s.end, -s.coef);
  }
  void integrate(std::vector<Step> steps) {
    std::sort(steps.begin(), steps.end(),
              [](const Step& a, const Step& b) { return a.first < b.first; });
    Rational level;
    for (std::size_t i = 0; i < steps.size();) {
      const Index at = steps[i].first;
      for (; i < steps.size() && steps[i].first == at; ++i) level = level + steps[i].second;
      if (i < steps.size()) append({at, steps[i].first, level});
    }
  }
  void append(Segment s) {
    if (s.coef == Rational(0) || s.begin >= s.end) return;
    if (!segments_.empty() && segments_.back().end == s.begin && segments_.back().coef == s.coef)
      segments_.back().end = s.end;
    else
      segments_.push_back(s);
  }

  Index extent_ = 1;
  std::vector<Segment> segments_;
};

}  // namespace tpsim
