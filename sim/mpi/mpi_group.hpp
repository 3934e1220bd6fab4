// SPDX-License-Identifier: MIT
// How a collective that all ranks of a group agree on moves its tensors by MPI.
#pragma once

#include <functional>

#include "sim/mpi/mpi_call.hpp"
#include "sim/process/wire.hpp"

namespace tpsim::mpi {

class MpiGroup final : public process::Group {
 public:
  /// Frees `comm` when everybody leaves.
  MpiGroup(MPI_Comm comm, bool fast);
  [[nodiscard]] bool move(const detail::Arrival& mine, std::uint64_t job) override;
  [[nodiscard]] std::unique_ptr<process::Group> split(int color, int key) override;
  void leave() override;

 private:
  [[nodiscard]] bool in_rank_order(const detail::Arrival& mine) const;
  [[nodiscard]] bool at_center(const detail::Arrival& mine, int center) const;
  [[nodiscard]] bool elsewhere(const detail::Arrival& mine, int center) const;
  [[nodiscard]] bool broadcast(const detail::Arrival& mine) const;
  void send_failures(const std::vector<bool>& done, int center) const;
  /// nothing: not for this collective, all ranks agree on that
  [[nodiscard]] std::optional<bool> fast(const detail::Arrival& mine) const;
  [[nodiscard]] std::optional<bool> fast_sum(const detail::Arrival& mine) const;
  [[nodiscard]] std::optional<bool> fast_move(const detail::Arrival& mine) const;
  /// What each rank has to do before all can go on, and the least of what they return. @throws what
  /// this rank's own has thrown, when the others know
  [[nodiscard]] int vote(const std::function<int()>& prepare) const;

  MPI_Comm comm_;
  bool fast_;
  int tag_ = 0;  ///< of this run's messages
};

}  // namespace tpsim::mpi
