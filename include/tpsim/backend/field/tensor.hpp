// SPDX-License-Identifier: MIT
// Values of the exact reading, what its ranks share, and what they count.
#pragma once

#include <cstdint>
#include <vector>

#include <tpsim/backend/field/gf61.hpp>
#include <tpsim/core/shape.hpp>
#include <tpsim/core/weakening.hpp>

namespace tpsim {

/// What all ranks of one check share. Everything random follows from the seed.
struct FieldContext {
  std::uint64_t seed = 0;
  Weakening weakening = Weakening::none;  ///< for tests of the verifier alone
};

/// [tokens, cols], row-major, canonical residues.
struct FieldTensor {
  Index tokens = 0, cols = 0;
  std::vector<gf61::Element> values;

  FieldTensor() = default;
  FieldTensor(Index rows, Index columns)
      : tokens(rows), cols(columns), values(static_cast<std::size_t>(rows * columns)) {}
  [[nodiscard]] gf61::Element at(Index t, Index c) const {
    return values[static_cast<std::size_t>(t * cols + c)];
  }
  [[nodiscard]] gf61::Element* row(Index t) { return values.data() + t * cols; }
  [[nodiscard]] const gf61::Element* row(Index t) const { return values.data() + t * cols; }
  friend bool operator==(const FieldTensor&, const FieldTensor&) = default;
};

/// What one backend object has done, for the soundness bound and for reports.
struct FieldCounters {
  std::uint64_t oracle_calls = 0;
  std::uint64_t comparisons = 0;  ///< of two values by size (maximum)
  std::uint64_t macs = 0;         ///< products in linear() and attention()
};

}  // namespace tpsim
