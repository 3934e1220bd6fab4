// SPDX-License-Identifier: MIT
// Moving tensors: in rank order through one rank that computes, or by MPI's own collectives.
#include "sim/mpi/mpi_group.hpp"

#include <numeric>

#include <tpsim/comm/detail/perform.hpp>

namespace tpsim::mpi {

using detail::Arrival;

namespace {

int center_of(const detail::Call& call) { return call.root >= 0 ? call.root : 0; }
std::size_t at(int r) { return static_cast<std::size_t>(r); }

}  // namespace

MpiGroup::MpiGroup(MPI_Comm comm, bool fast) : comm_(comm), fast_(fast) {
  TPSIM_MPI(MPI_Comm_rank(comm_, &rank));
  TPSIM_MPI(MPI_Comm_size(comm_, &size));
}

std::unique_ptr<process::Group> MpiGroup::split(int color, int key) {
  MPI_Comm part = MPI_COMM_NULL;
  TPSIM_MPI(MPI_Comm_split(comm_, color < 0 ? MPI_UNDEFINED : color, key, &part));
  if (part == MPI_COMM_NULL) return nullptr;
  return std::make_unique<MpiGroup>(part, fast_);
}

void MpiGroup::leave() {
  int finalized = 0;  // where the program ends before its world does
  TPSIM_MPI(MPI_Finalized(&finalized));
  if (finalized == 0) TPSIM_MPI(MPI_Comm_free(&comm_));
}

bool MpiGroup::move(const Arrival& mine, std::uint64_t job) {
  // Above the tags of other messages: none of an earlier run is left to be mistaken.
  tag_ = 16 + static_cast<int>(job % 16384);
  if (mine.call.op == CollectiveOp::barrier) {
    TPSIM_MPI(MPI_Barrier(comm_));
    return true;
  }
  if (fast_ && size > 1)
    if (const std::optional<bool> done = fast(mine)) return *done;
  return in_rank_order(mine);
}

// --- in rank order -------------------------------------------------------------------------------

bool MpiGroup::in_rank_order(const Arrival& mine) const {
  if (mine.call.op == CollectiveOp::broadcast) return broadcast(mine);
  const int center = center_of(mine.call);
  return rank == center ? at_center(mine, center) : elsewhere(mine, center);
}

void MpiGroup::send_failures(const std::vector<bool>& done, int center) const {
  for (int r = 0; r < size; ++r)
    if (r != center && !done[at(r)]) send_failure(comm_, r, tag_);
}

/// Receives all tensors, does what the last virtual rank to arrive does, and sends the results.
bool MpiGroup::at_center(const Arrival& mine, int center) const {
  const int n = size;
  const detail::Call& call = mine.call;
  const bool all_alike = call.op == CollectiveOp::all_reduce || call.op == CollectiveOp::all_gather;
  std::vector<bool> done(at(n));  // needs no answer any more
  bool failed = false;
  detail::Group g(name, std::vector<int>(at(n)));
  std::vector<Bytes> packed(at(n));
  for (int r = 0; r < n; ++r)
    if (r != center && !receive_sized(comm_, r, tag_, packed[at(r)])) done[at(r)] = failed = true;
  if (failed) {
    send_failures(done, center);
    return false;
  }
  try {
    std::vector<TensorOps::Owned> theirs;
    for (int r = 0; r < n; ++r) {
      Arrival& a = g.arrivals[at(r)];
      a.call = call;
      a.has_input = true, a.shape = mine.shape;
      if (r == center) continue;
      theirs.push_back(call.in.ops->make_unpacked(packed[at(r)]));
      Bytes().swap(packed[at(r)]);
      a.call.in.tensor = theirs.back().get();
      a.call.out = all_alike ? Buffer{call.out.ops, nullptr} : a.call.in;
      a.shape = call.in.ops->shape(a.call.in.tensor);
    }
    std::vector<const void*> scratch;
    detail::perform(g, scratch);
    if (call.op == CollectiveOp::gather) return true;
    Bytes result;
    for (int r = 0; r < n; ++r) {
      if (r == center) continue;
      const Buffer& out = all_alike ? call.out : g.arrivals[at(r)].call.out;
      if (!all_alike || result.empty()) result = out.ops->pack(out.tensor);
      send_sized(comm_, r, tag_, result);
      done[at(r)] = true;
    }
  } catch (const MpiError&) {
    throw;
  } catch (...) {
    if (call.op != CollectiveOp::gather) send_failures(done, center);
    throw;
  }
  return true;
}

bool MpiGroup::elsewhere(const Arrival& mine, int center) const {
  const detail::Call& call = mine.call;
  try {
    const Bytes packed = call.in.ops->pack(call.in.tensor);
    send_sized(comm_, center, tag_, packed);
  } catch (const MpiError&) {
    throw;
  } catch (...) {
    send_failure(comm_, center, tag_);
    throw;
  }
  if (call.op == CollectiveOp::gather) return true;
  Bytes result;
  if (!receive_sized(comm_, center, tag_, result)) return false;
  call.out.ops->unpack(result, call.out.tensor);
  return true;
}

bool MpiGroup::broadcast(const Arrival& mine) const {
  const detail::Call& call = mine.call;
  if (rank != call.root) {
    Bytes bytes;
    if (!receive_sized(comm_, call.root, tag_, bytes)) return false;
    call.out.ops->unpack(bytes, call.out.tensor);
    return true;
  }
  std::vector<bool> done(at(size));
  try {
    if (size > 1) {
      const Bytes bytes = call.in.ops->pack(call.in.tensor);
      for (int r = 0; r < size; ++r) {
        if (r == call.root) continue;
        send_sized(comm_, r, tag_, bytes);
        done[at(r)] = true;
      }
    }
    call.out.ops->assign(call.in.tensor, call.out.tensor);
  } catch (const MpiError&) {
    throw;
  } catch (...) {
    send_failures(done, call.root);
    throw;
  }
  return true;
}

// --- MPI's own collectives -----------------------------------------------------------------------

namespace {

constexpr int failed = -1, other_way = 0, ready = 1;

}  // namespace

int MpiGroup::vote(const std::function<int()>& prepare) const {
  int mine = failed, least = 0;
  std::exception_ptr error;
  try {
    mine = prepare();
  } catch (...) {
    error = std::current_exception();
  }
  TPSIM_MPI(MPI_Allreduce(&mine, &least, 1, MPI_INT, MPI_MIN, comm_));
  if (error) std::rethrow_exception(error);
  return least;
}

std::optional<bool> MpiGroup::fast(const Arrival& mine) const {
  switch (mine.call.op) {
    case CollectiveOp::all_reduce:
    case CollectiveOp::reduce_scatter:
      return mine.call.reduction == Reduction::sum ? fast_sum(mine) : std::nullopt;
    default:
      return fast_move(mine);
  }
}

/// MPI_Allreduce and MPI_Reduce_scatter_block of the tensor's numbers.
std::optional<bool> MpiGroup::fast_sum(const Arrival& mine) const {
  const detail::Call& call = mine.call;
  const TensorOps& ops = *call.in.ops;
  const bool scatters = call.op == CollectiveOp::reduce_scatter;
  const int n = size;
  TensorOps::Summands all;  // of a scatter, part by part
  TensorOps::Owned own(nullptr, [](void*) {});
  const int agreed = vote([&] {
    int mine_ready = ready;
    const Index part = scatters ? mine.shape.dim(call.dim) / n : 0;
    for (int r = 0; r < (scatters ? n : 1); ++r) {
      TensorOps::Owned slice(nullptr, [](void*) {});
      if (scatters) slice = ops.make_slice(call.in.tensor, call.dim, r * part, part);
      const TensorOps::Summands s = ops.summands(scatters ? slice.get() : call.in.tensor);
      if (s.empty()) mine_ready = other_way;
      all.singles.insert(all.singles.end(), s.singles.begin(), s.singles.end());
      all.doubles.insert(all.doubles.end(), s.doubles.begin(), s.doubles.end());
      if (r == rank) own = std::move(slice);
    }
    if (std::max(all.singles.size(), all.doubles.size()) > INT_MAX) mine_ready = other_way;
    return mine_ready;
  });
  if (agreed == failed) return false;
  if (agreed == other_way) return std::nullopt;
  const auto sum = [&](auto& numbers, MPI_Datatype type) {
    if (numbers.empty()) return;
    const auto count = static_cast<int>(numbers.size());
    if (!scatters) {
      TPSIM_MPI(MPI_Allreduce(MPI_IN_PLACE, numbers.data(), count, type, MPI_SUM, comm_));
      return;
    }
    auto part = numbers;
    part.resize(numbers.size() / at(n));
    TPSIM_MPI(
        MPI_Reduce_scatter_block(numbers.data(), part.data(), count / n, type, MPI_SUM, comm_));
    numbers = std::move(part);
  };
  sum(all.singles, MPI_FLOAT);
  sum(all.doubles, MPI_DOUBLE);
  call.out.ops->from_sums(scatters ? own.get() : call.in.tensor, all, n, call.out.tensor);
  return true;
}

/// MPI_Allgatherv, MPI_Gatherv, MPI_Bcast and MPI_Alltoallv of packed tensors.
std::optional<bool> MpiGroup::fast_move(const Arrival& mine) const {
  const detail::Call& call = mine.call;
  const TensorOps& ops = *(call.in.tensor != nullptr ? call.in.ops : call.out.ops);
  const int n = size, me = rank;
  const bool all_to_all = call.op == CollectiveOp::all_to_all;
  const bool sends = call.op != CollectiveOp::broadcast || me == call.root;
  Bytes packed;
  std::vector<int> sizes(at(n), 0);  // of what goes to each rank
  const int agreed = vote([&] {
    int mine_ready = ready;
    const Index part = all_to_all ? mine.shape.dim(call.dim) / n : 0;
    for (int r = 0; sends && r < (all_to_all ? n : 1); ++r) {
      const TensorOps::Owned slice = all_to_all
                                         ? ops.make_slice(call.in.tensor, call.dim, r * part, part)
                                         : TensorOps::Owned(nullptr, [](void*) {});
      const Bytes one = ops.pack(all_to_all ? slice.get() : call.in.tensor);
      packed.insert(packed.end(), one.begin(), one.end());
      if (packed.size() > at(INT_MAX / n)) mine_ready = other_way;
      sizes[at(r)] = static_cast<int>(std::min<std::size_t>(one.size(), INT_MAX));
    }
    return mine_ready;
  });
  if (agreed == failed) return false;
  if (agreed == other_way) return std::nullopt;

  if (call.op == CollectiveOp::broadcast) {
    TPSIM_MPI(MPI_Bcast(sizes.data(), 1, MPI_INT, call.root, comm_));
    packed.resize(at(sizes[0]));
    TPSIM_MPI(MPI_Bcast(packed.data(), sizes[0], MPI_BYTE, call.root, comm_));
    if (sends)
      call.out.ops->assign(call.in.tensor, call.out.tensor);
    else
      call.out.ops->unpack(packed, call.out.tensor);
    return true;
  }
  std::vector<int> counts(at(n)), places(at(n), 0), from(at(n), 0);
  if (all_to_all)
    TPSIM_MPI(MPI_Alltoall(sizes.data(), 1, MPI_INT, counts.data(), 1, MPI_INT, comm_));
  else
    TPSIM_MPI(MPI_Allgather(sizes.data(), 1, MPI_INT, counts.data(), 1, MPI_INT, comm_));
  std::exclusive_scan(counts.begin(), counts.end(), places.begin(), 0);
  std::exclusive_scan(sizes.begin(), sizes.end(), from.begin(), 0);
  Bytes all(at(places.back() + counts.back()));
  const auto count = static_cast<int>(packed.size());
  if (all_to_all)
    TPSIM_MPI(MPI_Alltoallv(packed.data(), sizes.data(), from.data(), MPI_BYTE, all.data(),
                            counts.data(), places.data(), MPI_BYTE, comm_));
  else if (call.op == CollectiveOp::all_gather)
    TPSIM_MPI(MPI_Allgatherv(packed.data(), count, MPI_BYTE, all.data(), counts.data(),
                             places.data(), MPI_BYTE, comm_));
  else
    TPSIM_MPI(MPI_Gatherv(packed.data(), count, MPI_BYTE, all.data(), counts.data(), places.data(),
                          MPI_BYTE, call.root, comm_));
  if (call.op == CollectiveOp::gather && me != call.root) return true;
  std::vector<TensorOps::Owned> parts;
  std::vector<const void*> tensors;
  for (int r = 0; r < n; ++r) {
    parts.push_back(
        ops.make_unpacked(std::span(all).subspan(at(places[at(r)]), at(counts[at(r)]))));
    tensors.push_back(parts.back().get());
  }
  call.out.ops->concat(tensors, call.dim, call.out.tensor);
  return true;
}

}  // namespace tpsim::mpi
