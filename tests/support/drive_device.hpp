// SPDX-License-Identifier: MIT
// Every collective on tensors of the CUDA backend, and what virtual ranks make of them.
#pragma once

#include <string>
#include <vector>

#include <tpsim/backend/collectives.hpp>
#include <tpsim/backend/cuda/cuda_backend.hpp>
#include <tpsim/comm/virtual_ranks.hpp>

namespace tpsim::testing {

using Numbers = std::vector<float>;
/// Every collective on every rank: [rank][collective].
struct Results {
  explicit Results(int ranks) : of(static_cast<std::size_t>(ranks)) {}
  std::vector<std::vector<Numbers>> of;
};

inline DeviceTensor numbered(CudaBackend& b, int rank, Shape s) {
  Numbers numbers;
  for (Index i = 0; i < s.size(); ++i)
    numbers.push_back(static_cast<float>((i * 7919 + rank * 104729) % 1013) / 64 - 7);
  return b.from_host(s, numbers);
}

inline void drive(Communicator& comm, CudaBackend& b, Results& results, bool uneven) {
  std::vector<Numbers>& out = results.of[static_cast<std::size_t>(comm.rank())];
  const BackendOps<CudaBackend> ops(b);
  const int n = comm.size(), last = n - 1;
  const auto keep = [&](DeviceTensor& x) { out.push_back(b.to_host(x)); };
  DeviceTensor x = numbered(b, comm.rank(), {3, 5});
  comm.all_reduce(ops.buffer(x), ops.buffer(x));
  keep(x);
  x = numbered(b, comm.rank(), {2, 7});
  comm.all_reduce(ops.buffer(x), ops.buffer(x), Reduction::max);
  keep(x);
  for (const int dim : {0, 1}) {
    const Index more = uneven ? comm.rank() : 0;
    x = numbered(b, comm.rank(), dim == 0 ? Shape(1 + more, 4) : Shape(3, 2 + more));
    comm.all_gather(ops.buffer(x), ops.buffer(x), dim);
    keep(x);
    x = numbered(b, comm.rank(), dim == 0 ? Shape(1 + more, 4) : Shape(3, 2 + more));
    const bool root = comm.rank() == last;
    comm.gather(ops.buffer(x), root ? ops.buffer(x) : ops.none(), last, dim);
    keep(x);
    DeviceTensor y = numbered(b, comm.rank(), dim == 0 ? Shape(2 * n, 3) : Shape(3, 2 * n));
    DeviceTensor part = numbered(b, 0, {1, 1});
    comm.reduce_scatter(ops.buffer(y), ops.buffer(part), dim);
    keep(part);
    comm.all_to_all(ops.buffer(y), ops.buffer(part), dim);
    keep(part);
  }
  x = numbered(b, comm.rank(), {4, 1});
  comm.broadcast(ops.buffer(x), ops.buffer(x), last);
  keep(x);
  x = numbered(b, comm.rank(), {0, 4});
  comm.all_gather(ops.buffer(x), ops.buffer(x), 0);
  keep(x);
  comm.barrier();
  // Odd ranks and even ones, each in reverse order.
  auto half = comm.split(comm.rank() % 2, -comm.rank());
  x = numbered(b, comm.rank(), {2, 2});
  half->all_gather(ops.buffer(x), ops.buffer(x), 0);
  keep(x);
  out.push_back({static_cast<float>(half->rank()), static_cast<float>(half->size())});
  out.push_back({half->group() == "world/" + std::to_string(comm.rank() % 2) ? 1.0F : 0.0F,
                 comm.split(-1, 0) == nullptr ? 1.0F : 0.0F});
}

inline Results on_virtual_ranks(const cuda::Device& device, int ranks, DType rule, bool uneven) {
  Results out(ranks);
  VirtualRanks world(ranks);
  world.run([&](Communicator& comm) {
    CudaBackend b(device, comm.rank(), rule);
    drive(comm, b, out, uneven);
  });
  return out;
}

}  // namespace tpsim::testing
