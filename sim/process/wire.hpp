// SPDX-License-Identifier: MIT
// What carries the messages and the tensors of processes that are ranks.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <tpsim/comm/detail/group.hpp>
#include <tpsim/core/bytes.hpp>

#include "sim/process/pause.hpp"

namespace tpsim::process {

/// A group of processes as one of them sees it.
class Group {
 public:
  std::string name;
  int rank = 0, size = 1;
  int splits = 0;

  Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  virtual ~Group() = default;
  /// Carries out a collective (no split) that all of the group call alike. @param job  number of
  /// the run: messages of another one are not this one's.
  /// @return false where another rank has failed; what this rank throws the others learn
  [[nodiscard]] virtual bool move(const detail::Arrival& mine, std::uint64_t job) = 0;
  /// Null for a negative color.
  [[nodiscard]] virtual std::unique_ptr<Group> split(int color, int key) = 0;
  /// Called by all of the group when no one needs it any more.
  virtual void leave() = 0;
  /// The same where the others may not come. Waits for nobody.
  virtual void give_up() {}
};

/// Another rank has failed before its part of the collective under way.
struct OtherFailed : std::exception {
  [[nodiscard]] const char* what() const noexcept override { return "another rank has failed"; }
};

/// Messages are kept apart by what they are for; those of one channel arrive in order.
enum class Channel : std::uint8_t { to_root, from_root, data, trouble };

/// Messages between rank 0 and each other process.
class Wire {
 public:
  struct Found {
    int from;
    Bytes bytes;
  };
  Wire() = default;
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  virtual ~Wire() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// Returns when `bytes` may be overwritten.
  virtual void send(int to, Channel channel, std::span<const std::byte> bytes) = 0;
  /// The next message of `from` (-1: of anybody), or nothing. @throws RemoteError where that
  /// process is gone and nothing of it is left
  [[nodiscard]] virtual std::optional<Found> receive(int from, Channel channel) = 0;
  /// The same, when it is there. @param meanwhile  called until then, with the pause so far
  [[nodiscard]] Bytes wait_for(
      int from, Channel channel,
      const std::function<void(const Pause&)>& meanwhile = [](const Pause&) {}) {
    for (Pause pause;; pause()) {
      if (std::optional<Found> found = receive(from, channel)) return std::move(found->bytes);
      meanwhile(pause);
    }
  }
  /// All processes.
  [[nodiscard]] virtual std::unique_ptr<Group> all() = 0;
  /// How long ranks wait for one that calls nothing, in seconds; 0: as long as it takes.
  [[nodiscard]] virtual double time_limit_s() const { return 0; }
  /// Ends this program in a way that ends the others, too.
  [[noreturn]] virtual void abort() = 0;
  /// Called by all processes when none will send any more.
  virtual void close() = 0;
};

}  // namespace tpsim::process
