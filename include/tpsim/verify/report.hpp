// SPDX-License-Identifier: MIT
// What a verification says: one result per check, and what was seen on the way.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tpsim/core/finding.hpp>
#include <tpsim/core/shape.hpp>

namespace tpsim {

enum class Reading : std::uint8_t { statics, exact, numeric };
[[nodiscard]] constexpr std::string_view name(Reading r) {
  constexpr std::array<std::string_view, 3> names{"static", "exact", "numeric"};
  return names[static_cast<std::size_t>(r)];
}

/// `skip`: there was nothing to compare; a check never passes because it looked at nothing.
enum class Outcome : std::uint8_t { pass, fail, skip };
[[nodiscard]] constexpr std::string_view name(Outcome o) {
  constexpr std::array<std::string_view, 3> names{"pass", "fail", "skip"};
  return names[static_cast<std::size_t>(o)];
}

/// An element of what a rank returns.
struct OutputPlace {
  int rank = 0;
  std::string tensor = "output";   ///< the part it belongs to: "q", "gate"
  std::optional<Index> head = {};  ///< of q, k and v, counted over the whole model
  Index token = 0;
  Index column = 0;  ///< of the part, as the rank holds it
};

/// One law applied to one subject by one reading.
/// @post result == skip exactly when compared == 0 and there is no finding
struct CheckResult {
  std::string id = {};
  Reading reading = Reading::statics;
  Outcome result = Outcome::skip;
  Index compared = 0;        ///< rows, elements or collectives looked at, as `message` says
  std::string message = {};  ///< one line: "6144 of 6144 rows on exactly one rank"
  std::vector<Finding> findings = {};

  // exact: seeds used, and log2 of the chance that a fault was missed (-64.2)
  std::optional<int> seeds = {};
  std::optional<double> log2_miss = {};
  // rounding: largest |difference| / bound, where, and the smallest fault that must be seen
  std::optional<double> largest_ratio = {};
  std::string largest_at = {};
  std::optional<OutputPlace> largest_place = {};
  /// Largest bound over root mean square of the output. A change of an element by more than
  /// (1 + largest_ratio) times this fraction of the output is certain to leave its bound.
  std::optional<double> detection_floor = {};
};

/// A part of a rank's parameter: rows (or columns) [begin, end) of the param came from
/// [source_begin, source_end) of `source`.
struct ShardPiece {
  Index begin = 0, end = 0;
  std::string source;  ///< logical tensor, "" where nothing was written
  Index source_begin = 0, source_end = 0, source_stride = 1;
  std::string label;  ///< "q heads 0-7", "gate"
  std::string part;   ///< the part of the param that it lies in: "q"; "" when there is one
  bool as_declared = true;
};
struct Shard {
  int rank = 0;
  Shape shape;
  std::vector<ShardPiece> pieces;  ///< along tp_dim (dim 0 where nothing is cut), in order
};
/// One parameter of the layer as the ranks hold it: what weight_loader really did.
struct TensorReport {
  std::string name;           ///< "qkv_proj.weight"
  std::optional<int> tp_dim;  ///< 0 rows, 1 columns, none replicated
  Shape full_shape;
  std::vector<Shard> shards;
};

struct CollectiveReport {
  std::string op, group, dtype, at;
  Shape shape;
  Index bytes = 0;  ///< of one rank's input
};

/// Per rank, in rank order.
struct Cost {
  std::vector<Index> weight_bytes, kv_bytes_per_token, flop, wire_bytes;
  Index full_weight_bytes = 0, full_flop = 0;  ///< of the unsharded layer
};

struct Report {
  std::string subject;
  int tp = 1;
  std::vector<TensorReport> tensors;
  std::vector<CollectiveReport> collectives;
  std::vector<CheckResult> checks;
  Cost cost;

  [[nodiscard]] bool passed() const {
    for (const CheckResult& c : checks)
      if (c.result == Outcome::fail) return false;
    return true;
  }
  [[nodiscard]] const CheckResult* find(std::string_view id) const {
    for (const CheckResult& c : checks)
      if (c.id == id) return &c;
    return nullptr;
  }
};

}  // namespace tpsim
