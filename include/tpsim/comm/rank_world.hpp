// SPDX-License-Identifier: MIT
// Where the ranks of a check live: in this process, or one in each process of a job.
#pragma once

#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/comm/virtual_ranks.hpp>
#include <tpsim/core/bytes.hpp>

namespace tpsim {

/// What a rank of another process threw, where it is no LayoutError.
class RemoteError : public std::runtime_error {
 public:
  RemoteError(int rank, std::string type, std::string text)
      : std::runtime_error("rank " + std::to_string(rank) + ": " + text),
        rank_(rank),
        type_(std::move(type)),
        text_(std::move(text)) {}
  [[nodiscard]] int rank() const { return rank_; }
  /// typeid(exception).name() there, or "" where that is not known.
  [[nodiscard]] const std::string& type() const { return type_; }
  /// The exception's own words.
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  int rank_;
  std::string type_, text_;
};

/// What a meeting of all ranks tells each of them.
struct Met {
  bool well = true;  ///< has no rank said at this meeting, or one before it, that it is not?
  Index value = 0;   ///< what rank 0 has said
};

/// The ranks that a check runs. Every process of a job makes the same calls in the same order.
class RankWorld {
 public:
  RankWorld() = default;
  RankWorld(const RankWorld&) = delete;
  RankWorld& operator=(const RankWorld&) = delete;
  virtual ~RankWorld() = default;

  [[nodiscard]] virtual int size() const = 0;
  /// The only process, or the one that is told everything and reports.
  [[nodiscard]] virtual bool is_root() const = 0;
  /// Does this process run that rank?
  [[nodiscard]] virtual bool has(int rank) const = 0;
  /// Calls `f` once for each rank that lives here; returns when all ranks have returned.
  /// @throws as VirtualRanks::run, in every process; RemoteError for what cannot cross
  virtual void run(const std::function<void(Communicator&)>& f) = 0;
  /// As VirtualRanks::meet. @param mine  what this rank has to say
  virtual Met meet(Communicator& comm, const Met& mine = {}) = 0;
  [[nodiscard]] virtual const Trace& trace() const = 0;
  [[nodiscard]] virtual int failed_rank() const = 0;

  // Between runs.
  /// What each process has to tell the root: [process] there, nothing elsewhere.
  [[nodiscard]] virtual std::vector<Bytes> bring(std::span<const std::byte> mine) = 0;
  /// The root's bytes, for every process.
  [[nodiscard]] virtual Bytes share(Bytes of_root) = 0;
};

/// All ranks in this process, on its thread.
class VirtualWorld final : public RankWorld {
 public:
  explicit VirtualWorld(int size, Schedule schedule = {}) : ranks_(size, schedule) {}
  [[nodiscard]] int size() const override { return ranks_.size(); }
  [[nodiscard]] bool is_root() const override { return true; }
  [[nodiscard]] bool has(int /*rank*/) const override { return true; }
  void run(const std::function<void(Communicator&)>& f) override {
    well_ = true;
    values_.clear();
    meetings_.assign(static_cast<std::size_t>(size()), 0);
    ranks_.run(f);
  }
  Met meet(Communicator& comm, const Met& mine = {}) override {
    well_ = well_ && mine.well;
    if (comm.rank() == 0) values_.push_back(mine.value);
    const std::size_t number = meetings_[static_cast<std::size_t>(comm.rank())]++;
    VirtualRanks::meet(comm);
    return {well_, number < values_.size() ? values_[number] : 0};
  }
  [[nodiscard]] const Trace& trace() const override { return ranks_.trace(); }
  [[nodiscard]] int failed_rank() const override { return ranks_.failed_rank(); }
  [[nodiscard]] std::vector<Bytes> bring(std::span<const std::byte> mine) override {
    return {Bytes(mine.begin(), mine.end())};
  }
  [[nodiscard]] Bytes share(Bytes of_root) override { return of_root; }

 private:
  VirtualRanks ranks_;
  // Of a run.
  bool well_ = true;
  std::vector<Index> values_;          ///< [meeting]
  std::vector<std::size_t> meetings_;  ///< [rank]: how many it has come to
};

/// One value that the root knows, in every process.
template <class T>
  requires std::is_trivially_copyable_v<T>
[[nodiscard]] T value_of_root(RankWorld& world, const T& of_root) {
  ByteWriter w;
  if (world.is_root()) w.put(of_root);
  return ByteReader(world.share(std::move(w.bytes))).get<T>();
}

/// The sum over all processes, on the root; elsewhere 0.
[[nodiscard]] inline double sum_on_root(RankWorld& world, double mine) {
  ByteWriter w;
  w.put(mine);
  double sum = 0;
  for (const Bytes& each : world.bring(w.bytes)) sum += ByteReader(each).get<double>();
  return sum;
}

}  // namespace tpsim
