// SPDX-License-Identifier: MIT
// Messages with rank 0 over TCP, for processes that no MPI has started.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include <tpsim/comm/process/meeting.hpp>

#include "sim/process/wire.hpp"

namespace tpsim::process {

/// Rank 0 listens on every network of its machine; the others connect and show the secret of the
/// meeting file. What is sent is not encrypted. A process that ends without close() is
/// noticed by rank 0, and rank 0's end by the others.
class SocketWire : public Wire {
 public:
  /// Returns when all processes are there. @throws MeetingError after the time limit, or for ranks
  /// that cannot be those of one job
  explicit SocketWire(const Meeting& meeting);
  ~SocketWire() override;
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  void send(int to, Channel channel, std::span<const std::byte> bytes) override;
  [[nodiscard]] std::optional<Found> receive(int from, Channel channel) override;
  [[nodiscard]] double time_limit_s() const override { return time_limit_s_; }
  [[noreturn]] void abort() override;
  void close() override;
  /// For a rank that waits for others elsewhere. @throws RemoteError where one of them has died, or
  /// rank 0 has ended the job; OtherFailed where one has failed that may be waited for
  void watch();
  /// Where a collective has failed here: has it because of another rank? Waits a little for the
  /// answer. @throws RemoteError as watch()
  [[nodiscard]] bool has_other_failed();

 private:
  [[nodiscard]] bool told_of_failure();
  class Network;
  int rank_, size_;
  double time_limit_s_;
  std::optional<std::chrono::steady_clock::time_point> failure_seen_;
  std::unique_ptr<Network> network_;
};

}  // namespace tpsim::process
