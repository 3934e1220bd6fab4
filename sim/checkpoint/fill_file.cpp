// SPDX-License-Identifier: MIT
#include "fill_file.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace tpsim::checkpoint_detail {
namespace {

constexpr Index piece_bytes = Index{1} << 20;  // small enough to stay in a core's cache

class Filler {
 public:
  Filler(const NewFile& file, Index begin, std::span<const NewTensor> tensors,
         const ShardFile& shard, const FillTensor& fill)
      : file_(file), tensors_(tensors), first_(shard.first), fill_(fill) {
    for (std::size_t i = 0; i < shard.count; ++i) {
      const Index bytes = tensors[shard.first + i].bytes();
      starts_.push_back({pieces_, begin});
      pieces_ += (bytes + piece_bytes - 1) / piece_bytes;
      begin += bytes;
    }
  }
  [[nodiscard]] Index pieces() const { return pieces_; }

  /// Takes pieces until there are none, or one failed.
  void work() {
    try {
      std::vector<std::byte> buffer(static_cast<std::size_t>(piece_bytes));
      for (Index k = next_++; k < pieces_ && !stop_; k = next_++) one(k, buffer);
    } catch (...) {
      stop_ = true;
      const std::lock_guard lock(mutex_);
      if (!first_error_) first_error_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (first_error_) std::rethrow_exception(first_error_);
  }

 private:
  struct Start {
    Index piece, byte;  // of a tensor: its first piece, and its place in the file
  };

  void one(Index k, std::vector<std::byte>& buffer) const {
    // The last tensor that starts at or before piece k; an empty one has no piece.
    const auto after =
        std::upper_bound(starts_.begin(), starts_.end(), k,
                         [](Index piece, const Start& s) { return piece < s.piece; });
    const Start& start = *(after - 1);
    const std::size_t tensor = first_ + static_cast<std::size_t>(after - 1 - starts_.begin());
    const NewTensor& t = tensors_[tensor];
    const Index at = (k - start.piece) * piece_bytes;
    const auto n = static_cast<std::size_t>(std::min(piece_bytes, t.bytes() - at));
    const std::span<std::byte> bytes(buffer.data(), n);
    fill_(tensor, at / bytes_of(t.dtype), bytes);
    file_.write_at(start.byte + at, bytes);
  }

  const NewFile& file_;
  std::span<const NewTensor> tensors_;
  std::size_t first_;
  const FillTensor& fill_;
  std::vector<Start> starts_;
  Index pieces_ = 0;
  std::atomic<Index> next_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::exception_ptr first_error_;
};

}  // namespace

void fill_file(const NewFile& file, Index begin, std::span<const NewTensor> tensors,
               const ShardFile& shard, const FillTensor& fill, int threads) {
  Filler filler(file, begin, tensors, shard, fill);
  const Index wanted = threads > 0 ? threads : std::max(1U, std::thread::hardware_concurrency());
  {
    std::vector<std::jthread> others;
    for (Index i = 1; i < std::min(wanted, filler.pieces()); ++i)
      others.emplace_back([&filler] { filler.work(); });
    filler.work();
  }
  filler.rethrow();
}

}  // namespace tpsim::checkpoint_detail
