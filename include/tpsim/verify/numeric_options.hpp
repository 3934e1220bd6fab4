// SPDX-License-Identifier: MIT
// What the numeric reading is asked for.
#pragma once

#include <cstdint>
#include <vector>

#include <tpsim/backend/eigen/eigen_backend.hpp>
#include <tpsim/comm/rank_world.hpp>
#include <tpsim/verify/report.hpp>

namespace tpsim {

class Subject;
struct NumericOptions;

/// Who computes the ranks' numbers in place of EigenBackend<float>: another backend with its own
/// bounds. full() stays on the CPU, in f64.
class NumericEngine {
 public:
  NumericEngine() = default;
  NumericEngine(const NumericEngine&) = delete;
  NumericEngine& operator=(const NumericEngine&) = delete;
  virtual ~NumericEngine() = default;
  [[nodiscard]] virtual CheckResult integers(const Subject&, const NumericOptions&) const = 0;
  [[nodiscard]] virtual std::vector<CheckResult> rounding(const Subject&,
                                                          const NumericOptions&) const = 0;
};

struct NumericOptions {
  DType dtype = DType::f32;  ///< f32, bf16 or f16
  std::uint64_t seed = 1;
  Schedule schedule = {};
  ReduceOrder all_reduce = ReduceOrder::rank;  ///< order and rounding of sums over ranks
  Weakening weakening = Weakening::none;       ///< for tests of the verifier alone
  /// Judge a layer's linear parts one by one, each fed what full() feeds it. Not for ranks that
  /// hold an equivalent permutation: between the parts they have other columns than declared.
  bool stages = true;
  RankWorld* world = nullptr;             ///< where the ranks live; null: in this process
  const NumericEngine* engine = nullptr;  ///< null: EigenBackend<float>
  bool tf32 = false;                      ///< of a device: f32 products may use TF32
};

}  // namespace tpsim
