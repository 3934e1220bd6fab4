// SPDX-License-Identifier: MIT
// What a rank in a process of its own has called, told to other processes and run again there on
// virtual ranks: their findings, trace and first failure are those of the real run.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/comm/rank_world.hpp>

namespace tpsim::detail {

/// One call of one rank, without its tensors.
struct LoggedCall {
  bool meeting = false;  ///< no collective: VirtualRanks::meet; of the rest `said` counts
  Met said;
  std::string group;
  int group_rank = 0;
  CollectiveOp op = CollectiveOp::barrier;
  Reduction reduction = Reduction::sum;
  int dim = -1, root = -1;
  bool has_input = false;
  Shape shape;
  DType dtype = DType::f32;
  std::string kind;
  int color = 0, key = 0;
  std::string file;
  unsigned line = 0;
};

/// How a rank's function ended; `stopped` waits for the others' failure.
enum class RankEnd : std::uint8_t { open, returned, failed, stopped };

struct RankLog {
  std::vector<LoggedCall> calls;
  RankEnd end = RankEnd::open;
};

[[nodiscard]] inline LoggedCall logged(const Arrival& a, std::string_view group, int group_rank) {
  LoggedCall c;
  c.group = group, c.group_rank = group_rank;
  c.op = a.call.op, c.reduction = a.call.reduction, c.dim = a.call.dim, c.root = a.call.root;
  c.has_input = a.has_input, c.shape = a.shape, c.dtype = a.dtype, c.kind = a.tensor;
  c.color = a.color, c.key = a.key;
  c.file = a.call.at.file_name(), c.line = a.call.at.line();
  return c;
}

/// The same text, for as long as the program runs.
[[nodiscard]] inline const std::string& kept(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> all;
  const std::scoped_lock lock(mutex);
  return *all.insert(text).first;
}

[[nodiscard]] inline Arrival arrival_of(const LoggedCall& c) {
  Arrival a;
  a.call = {c.op, c.reduction, c.dim, c.root, {}, {}, CallSite(kept(c.file).c_str(), c.line)};
  a.has_input = c.has_input, a.shape = c.shape, a.dtype = c.dtype, a.tensor = kept(c.kind);
  a.color = c.color, a.key = c.key;
  return a;
}

inline void put(ByteWriter& w, const LoggedCall& c) {
  w.put(c.meeting);
  w.put(c.said.well);
  w.put(c.said.value);
  w.put_text(c.group);
  for (const int i : {c.group_rank, static_cast<int>(c.op), static_cast<int>(c.reduction), c.dim,
                      c.root, static_cast<int>(c.has_input), static_cast<int>(c.dtype), c.color,
                      c.key, static_cast<int>(c.line)})
    w.put(i);
  w.put(c.shape);
  w.put_text(c.kind);
  w.put_text(c.file);
}
[[nodiscard]] inline LoggedCall get_call(ByteReader& r) {
  LoggedCall c;
  c.meeting = r.get<bool>();
  c.said.well = r.get<bool>();
  c.said.value = r.get<Index>();
  c.group = r.get_text();
  c.group_rank = r.get<int>();
  c.op = static_cast<CollectiveOp>(r.get<int>());
  c.reduction = static_cast<Reduction>(r.get<int>());
  c.dim = r.get<int>(), c.root = r.get<int>();
  c.has_input = r.get<int>() != 0;
  c.dtype = static_cast<DType>(r.get<int>());
  c.color = r.get<int>(), c.key = r.get<int>();
  c.line = static_cast<unsigned>(r.get<int>());
  c.shape = r.get<Shape>();
  c.kind = r.get_text();
  c.file = r.get_text();
  return c;
}

/// Tensors that are a shape and a dtype.
class ReplayOps final : public TensorOps {
 public:
  explicit ReplayOps(const LoggedCall& call) : call_(&call) {}
  [[nodiscard]] Shape shape(const void*) const override { return call_->shape; }
  [[nodiscard]] DType dtype(const void*) const override { return call_->dtype; }
  [[nodiscard]] std::string_view kind() const override { return kept(call_->kind); }
  void reduce(Reduction, std::span<const void* const>, void*) const override {}
  void concat(std::span<const void* const>, int, void*) const override {}
  void slice(const void*, int, Index, Index, void*) const override {}
  void assign(const void*, void*) const override {}
  [[nodiscard]] Owned make_slice(const void*, int, Index, Index) const override {
    return {nullptr, [](void*) {}};
  }

 private:
  const LoggedCall* call_;
};

/// What a finished run was.
struct Replayed {
  Trace trace;
  int failed_rank = -1;  ///< whose function threw first; -1: none
  std::optional<CollectiveMismatch> mismatch;
};

/// Runs the logs of all ranks of a world once more.
[[nodiscard]] inline Replayed replay(const std::vector<RankLog>& logs) {
  struct Failed {};
  VirtualRanks world(static_cast<int>(logs.size()));
  Replayed out;
  try {
    world.run([&](Communicator& job) {
      const RankLog& log = logs[static_cast<std::size_t>(job.rank())];
      std::map<std::string, std::unique_ptr<Communicator>> parts;
      for (const LoggedCall& call : log.calls) {
        if (call.meeting) {
          VirtualRanks::meet(job);
          continue;
        }
        const auto part = parts.find(call.group);
        Communicator& group = part == parts.end() ? job : *part->second;
        Arrival a = arrival_of(call);
        if (call.op == CollectiveOp::split) {
          if (auto next = group.split(call.color, call.key, a.call.at)) {
            std::string name(next->group());
            parts[name] = std::move(next);
          }
          continue;
        }
        const ReplayOps ops(call);
        char tensor = 0;
        const Buffer any{&ops, &tensor};
        if (call.has_input) a.call.in = any;
        a.call.out = any;
        CallOf::forward_to(group, a.call);
      }
      if (log.end == RankEnd::failed) throw Failed{};
      if (log.end != RankEnd::returned) VirtualRanks::meet(job);  // the others' failure comes
    });
  } catch (const Failed&) {
    out.failed_rank = world.failed_rank();
  } catch (const CollectiveMismatch& e) {
    out.mismatch = e;
  }
  out.trace = world.trace();
  return out;
}

}  // namespace tpsim::detail
