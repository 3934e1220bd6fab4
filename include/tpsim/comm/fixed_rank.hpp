// SPDX-License-Identifier: MIT
// A rank without peers: enough to build a layer and to load its weights.
#pragma once

#include <stdexcept>
#include <string>

#include <tpsim/comm/communicator.hpp>

namespace tpsim {

/// Knows its rank and size and nothing else. For loading alone, where no rank waits for another.
class FixedRank final : public Communicator {
 public:
  /// @throws LayoutError (collectives) unless 0 <= rank < size
  FixedRank(int rank, int size) : rank_(rank), size_(size) {
    if (size < 1 || rank < 0 || rank >= size)
      throw LayoutError(
          "no rank " + std::to_string(rank) + " in a group of " + std::to_string(size),
          {{"collectives", "a rank is at least 0 and below the size of its group"}});
  }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string_view group() const override { return "fixed"; }
  /// @throws std::logic_error always, as every collective here does
  [[nodiscard]] std::unique_ptr<Communicator> split(
      int /*color*/, int /*key*/, Site /*at*/ = std::source_location::current()) override {
    refuse(CollectiveOp::split);
  }

 private:
  void run(const Call& call) override { refuse(call.op); }
  [[noreturn]] void refuse(CollectiveOp op) const {
    throw std::logic_error(std::string(name(op)) + ": rank " + std::to_string(rank_) + " of " +
                           std::to_string(size_) +
                           " is fixed, for loading alone, and has no peers; run the layer's "
                           "forward in VirtualRanks::run");
  }
  int rank_;
  int size_;
};

}  // namespace tpsim
