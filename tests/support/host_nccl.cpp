// SPDX-License-Identifier: MIT
// nccl::Group on host memory, among threads and among processes of one machine: they meet by the
// id alone, at a file in $TPSIM_HOST_NCCL_DIR, else /dev/shm. For tests without a GPU; link it in
// the place of tpsim_nccl.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tpsim/backend/cuda/element.hpp>
#include <tpsim/backend/nccl/nccl_group.hpp>

#include <tests/support/shared_table.hpp>

namespace tpsim::nccl {

struct Group::State {
  Seat seat;
  testing::SharedTable table;
  int splits = 0;
  std::string aborted;  ///< why, when it was

  State(Seat s, const std::string& file) : seat(std::move(s)), table(file, seat.rank, seat.size) {}

  [[nodiscard]] std::string who() const {
    return fmt::format("rank {} of {}", seat.rank, seat.size);
  }

  /// f(), and what it throws aborts the group, so that nobody waits for this rank.
  template <class F>
  void call(const std::string& what, const F& f) {
    if (aborted.empty() && table.aborted_by() >= 0) aborted = by_another();
    if (!aborted.empty()) throw Error(what + " in a group that was aborted: " + aborted);
    started_ = Clock::now();
    try {
      f();
    } catch (const std::exception& e) {
      aborted = e.what();
      table.abort();
      throw;
    } catch (...) {
      aborted = what + " was broken off on " + who();
      table.abort();
      throw;
    }
  }
  /// Waits for all. @throws cuda::Error after the time limit of the call
  void meet(const std::string& what) {
    const std::uint32_t meeting = table.come();
    for (int round = 0; !table.all_came(meeting); ++round) {
      seat.watch();
      if (table.aborted_by() >= 0) throw Error(what + " failed on " + who() + ": " + by_another());
      if (std::chrono::duration<double>(Clock::now() - started_).count() > seat.time_limit_s)
        throw Error(fmt::format(
            "{} did not end within {} s on {}: another rank has ended, or calls something else; "
            "the group was aborted",
            what, seat.time_limit_s, who()));
      if (round < 100)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  /// read() once everybody's input is there; nobody goes on before all have read.
  template <class F>
  void exchange(const void* in, Size bytes, const std::string& what, const F& read) {
    call(what, [&] {
      table.write(in, bytes);
      meet(what);
      read();
      meet(what);
    });
  }

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] std::string by_another() const {
    return fmt::format("rank {} has aborted the group", table.aborted_by());
  }
  Clock::time_point started_;  ///< the call
};

namespace {

std::string file_of(const std::vector<std::byte>& id) {
  if (id.size() != 128) throw Error(fmt::format("an id has 128 bytes, this one has {}", id.size()));
  const char* given = std::getenv("TPSIM_HOST_NCCL_DIR");
  const std::filesystem::path folder = given != nullptr ? given
                                       : ::access("/dev/shm", W_OK) == 0
                                           ? "/dev/shm"
                                           : std::filesystem::temp_directory_path();
  std::string name = "tpsim-nccl-";
  for (std::size_t i = 0; i < 16; ++i) name += fmt::format("{:02x}", static_cast<unsigned>(id[i]));
  // All of the id counts, and in hex it is too long for a file's name.
  const std::string_view all(reinterpret_cast<const char*>(id.data()), id.size());
  return folder / (name + fmt::format("-{:016x}", std::hash<std::string_view>{}(all)));
}

std::shared_ptr<Group::State> meeting_at(const std::string& file, const Seat& seat,
                                         const std::string& what) {
  auto state = std::make_shared<Group::State>(seat, file);
  state->call(what, [&] { state->meet(what); });
  return state;
}

unsigned char* block(void* memory, Size index, Size bytes) {
  return static_cast<unsigned char*>(memory) + index * bytes;
}

/// out := elements [first, first + count) of everybody's input, reduced from the last rank to the
/// first and rounded at every hop: as NCCL's, an order that is not the ranks'.
void reduce(const Group::State& s, Size first, Size count, cuda::Type type, cuda::ReduceOp op,
            void* out) {
  const Size width = cuda::bytes_of(type);
  std::vector<unsigned char> next(static_cast<std::size_t>(count * width));
  s.table.read(s.seat.size - 1, first * width, out, count * width);
  for (int r = s.seat.size - 1; r-- > 0;) {
    s.table.read(r, first * width, next.data(), count * width);
    for (Size i = 0; i < count; ++i) {
      const float a = cuda::load_word(type, out, i), b = cuda::load_word(type, next.data(), i);
      cuda::store_word(type, out, i, op == cuda::ReduceOp::sum ? a + b : std::max(a, b));
    }
  }
}

}  // namespace

bool Group::is_built() { return true; }
std::string Group::version() { return "no NCCL at all"; }
std::vector<std::byte> Group::new_id() {
  std::random_device random;
  std::vector<std::byte> id(128);
  for (std::byte& b : id) b = static_cast<std::byte>(random());
  return id;
}
Group Group::join(cuda::Device /*device*/, const Seat& seat) {
  if (seat.rank < 0 || seat.rank >= seat.size)
    throw Error(fmt::format("there is no rank {} of {}", seat.rank, seat.size));
  return Group(meeting_at(file_of(seat.id), seat, "the meeting of the ranks"));
}
int Group::rank() const { return state_->seat.rank; }
int Group::size() const { return state_->seat.size; }

void Group::all_gather(const void* in, void* out, Size bytes, const std::string& what) {
  state_->exchange(in, bytes, what, [&] {
    for (int r = 0; r < size(); ++r) state_->table.read(r, 0, block(out, r, bytes), bytes);
  });
}
void Group::all_reduce(const void* in, void* out, Size count, cuda::Type type, cuda::ReduceOp op,
                       const std::string& what) {
  state_->exchange(in, count * cuda::bytes_of(type), what,
                   [&] { reduce(*state_, 0, count, type, op, out); });
}
void Group::reduce_scatter(const void* in, void* out, Size count, cuda::Type type,
                           cuda::ReduceOp op, const std::string& what) {
  state_->exchange(in, size() * count * cuda::bytes_of(type), what,
                   [&] { reduce(*state_, rank() * count, count, type, op, out); });
}
void Group::broadcast(const void* in, void* out, Size bytes, int root, const std::string& what) {
  state_->exchange(in, rank() == root ? bytes : 0, what,
                   [&] { state_->table.read(root, 0, out, bytes); });
}
void Group::gather(const void* in, void* out, Size bytes, int root, const std::string& what) {
  state_->exchange(in, bytes, what, [&] {
    for (int r = 0; rank() == root && r < size(); ++r)
      state_->table.read(r, 0, block(out, r, bytes), bytes);
  });
}
void Group::all_to_all(const void* in, void* out, Size bytes, const std::string& what) {
  state_->exchange(in, size() * bytes, what, [&] {
    for (int r = 0; r < size(); ++r)
      state_->table.read(r, rank() * bytes, block(out, r, bytes), bytes);
  });
}

void Group::abandon() {
  state_->aborted = "this rank has left";
  state_->table.abort();
}

Group Group::split(int color, int key) {
  const std::array own{color, key};
  std::vector<std::pair<int, int>> members;  // [key, rank]
  state_->exchange(&own, sizeof own, "split", [&] {
    for (int r = 0; r < size(); ++r) {
      std::array<int, 2> its{};
      state_->table.read(r, 0, &its, sizeof its);
      if (its[0] == color) members.emplace_back(its[1], r);
    }
  });
  const int number = state_->splits++;
  if (color < 0) return Group(nullptr);
  std::sort(members.begin(), members.end());
  Seat seat = state_->seat;
  seat.size = static_cast<int>(members.size());
  seat.rank = static_cast<int>(std::find(members.begin(), members.end(), std::pair(key, rank())) -
                               members.begin());
  return Group(
      meeting_at(fmt::format("{}.{}.{}", state_->table.file(), number, color), seat, "split"));
}

}  // namespace tpsim::nccl
