// SPDX-License-Identifier: MIT
// nccl::Group among the threads of one process, on host memory: they meet by the name of the file,
// which is never written. For tests without a GPU; link it in the place of tpsim_nccl.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include <tpsim/backend/cuda/element.hpp>
#include <tpsim/backend/nccl/nccl_group.hpp>

namespace tpsim::nccl {
namespace {

/// Everybody leaves something and goes on when all have.
struct Table {
  struct Left {
    const void* in = nullptr;
    int color = 0, key = 0;
  };
  explicit Table(int ranks) : left(static_cast<std::size_t>(ranks)) {}
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Left> left;
  std::map<std::pair<long, int>, std::shared_ptr<Table>> parts;  ///< [round, color]
  int come = 0;
  long round = 0;
};

std::mutex meetings_mutex;
std::map<std::string, std::shared_ptr<Table>> meetings;

}  // namespace

struct Group::State {
  std::shared_ptr<Table> table;
  int rank = 0;
  double time_limit_s = 60;
  bool aborted = false;

  [[nodiscard]] int size() const { return static_cast<int>(table->left.size()); }
  /// Waits for all. @throws cuda::Error after the time limit
  void meet(const std::string& what) {
    std::unique_lock lock(table->mutex);
    const long mine = table->round;
    if (++table->come == size()) {
      table->come = 0;
      ++table->round;
      table->changed.notify_all();
      return;
    }
    const auto limit = std::chrono::duration<double>(time_limit_s);
    if (table->changed.wait_for(lock, limit, [&] { return table->round != mine; })) return;
    aborted = true;
    throw cuda::Error(what + " did not end within " + std::to_string(time_limit_s) + " s");
  }
  /// f() once everybody's input is there; nobody goes on before all have read.
  template <class F>
  void exchange(const Table::Left& own, const std::string& what, const F& f) {
    if (aborted) throw cuda::Error(what + " in a group that was aborted");
    table->left[static_cast<std::size_t>(rank)] = own;
    meet(what);
    f();
    meet(what);
  }
  [[nodiscard]] const unsigned char* of(int r) const {
    return static_cast<const unsigned char*>(table->left[static_cast<std::size_t>(r)].in);
  }
};

namespace {

void copy(void* to, Size at, const void* from, Size bytes) {
  if (bytes > 0)
    std::memcpy(static_cast<unsigned char*>(to) + at, from, static_cast<std::size_t>(bytes));
}

/// Elements [first, first + count) of everybody's input, reduced from the last rank to the first:
/// as NCCL, in an order that is not the ranks'.
std::vector<float> reduced(const Group::State& s, Size first, Size count, cuda::Type type,
                           cuda::ReduceOp op) {
  std::vector<float> out;
  for (Size i = first; i < first + count; ++i) {
    float sum = cuda::load_word(type, s.of(s.size() - 1), i);
    for (int r = s.size() - 1; r-- > 0;) {
      const float next = cuda::load_word(type, s.of(r), i);
      sum = op == cuda::ReduceOp::sum ? cuda::rounded_to(type, sum + next) : std::max(sum, next);
    }
    out.push_back(sum);
  }
  return out;
}

void put(void* to, cuda::Type type, const std::vector<float>& numbers) {
  for (std::size_t i = 0; i < numbers.size(); ++i)
    cuda::store_word(type, to, static_cast<Size>(i), numbers[i]);
}

}  // namespace

std::string Group::version() { return "no NCCL at all"; }
Group Group::join(cuda::Device /*device*/, const Meeting& m) {
  auto state = std::make_shared<State>();
  state->rank = m.rank, state->time_limit_s = m.time_limit_s;
  {
    const std::lock_guard lock(meetings_mutex);
    auto& table = meetings[m.file];
    if (table == nullptr) table = std::make_shared<Table>(m.size);
    state->table = table;
  }
  state->meet("the meeting at " + m.file);
  return Group(std::move(state));
}
int Group::rank() const { return state_->rank; }
int Group::size() const { return state_->size(); }

void Group::all_gather(const void* in, void* out, Size bytes, const std::string& what) {
  state_->exchange({in}, what, [&] {
    for (int r = 0; r < size(); ++r) copy(out, r * bytes, state_->of(r), bytes);
  });
}
void Group::all_reduce(const void* in, void* out, Size count, cuda::Type type, cuda::ReduceOp op,
                       const std::string& what) {
  state_->exchange({in}, what, [&] { put(out, type, reduced(*state_, 0, count, type, op)); });
}
void Group::reduce_scatter(const void* in, void* out, Size count, cuda::Type type,
                           cuda::ReduceOp op, const std::string& what) {
  state_->exchange({in}, what,
                   [&] { put(out, type, reduced(*state_, rank() * count, count, type, op)); });
}
void Group::broadcast(const void* in, void* out, Size bytes, int root, const std::string& what) {
  state_->exchange({in}, what, [&] { copy(out, 0, state_->of(root), bytes); });
}
void Group::gather(const void* in, void* out, Size bytes, int root, const std::string& what) {
  state_->exchange({in}, what, [&] {
    for (int r = 0; rank() == root && r < size(); ++r) copy(out, r * bytes, state_->of(r), bytes);
  });
}
void Group::all_to_all(const void* in, void* out, Size bytes, const std::string& what) {
  state_->exchange({in}, what, [&] {
    for (int r = 0; r < size(); ++r) copy(out, r * bytes, state_->of(r) + rank() * bytes, bytes);
  });
}

Group Group::split(int color, int key) {
  auto part = std::make_shared<State>();
  part->time_limit_s = state_->time_limit_s;
  state_->exchange({nullptr, color, key}, "split", [&] {
    Table& t = *state_->table;
    std::vector<std::pair<int, int>> members;
    for (int r = 0; r < size(); ++r) {
      const Table::Left& l = t.left[static_cast<std::size_t>(r)];
      if (l.color == color) members.emplace_back(l.key, r);
    }
    std::sort(members.begin(), members.end());
    const auto own = std::find(members.begin(), members.end(), std::pair(key, rank()));
    part->rank = static_cast<int>(own - members.begin());
    const std::lock_guard lock(t.mutex);
    auto& table = t.parts[{t.round, color}];
    if (table == nullptr) table = std::make_shared<Table>(static_cast<int>(members.size()));
    part->table = table;
  });
  return Group(color < 0 ? nullptr : std::move(part));
}

}  // namespace tpsim::nccl
