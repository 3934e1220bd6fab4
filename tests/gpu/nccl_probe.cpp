// SPDX-License-Identifier: MIT
// One process of several that run every collective through NCCL and compare with virtual ranks on
// the same GPU: to the bit in rank order, on integers in NCCL's own order. usage: tpsim_nccl_probe
// RANK SIZE FILE
#include <cstdio>
#include <cstdlib>

#include <tpsim/backend/nccl/nccl_communicator.hpp>
#include <tpsim/layers/linear.hpp>

#include <tests/support/drive_device.hpp>

namespace tpsim::testing {
namespace {

int compare(cuda::Device device, const nccl::Meeting& at, NcclMode mode) {
  int wrong = 0;
  NcclCommunicator comm(device, nccl::Group::join(device, at), mode);
  for (const DType rule : {DType::f32, DType::bf16, DType::f16}) {
    // Uneven parts are for rank order alone.
    const bool uneven = mode == NcclMode::rank_order;
    Results have(at.size);
    CudaBackend b(device, at.rank, rule);
    drive(comm, b, have, uneven);
    const Results wanted = on_virtual_ranks(device, at.size, rule, uneven);
    const auto& own = have.of[static_cast<std::size_t>(at.rank)];
    const auto& same = wanted.of[static_cast<std::size_t>(at.rank)];
    for (std::size_t k = 0; k < same.size(); ++k) {
      const bool sums = k == 0 || k == 4 || k == 8;  // in another order: not to the bit
      if (mode == NcclMode::native && sums) continue;
      if (k < own.size() && own[k] == same[k]) continue;
      ++wrong;
      std::printf("FAIL  rank %d, %s, result %zu differs from virtual ranks\n", at.rank,
                  std::string(name(rule)).c_str(), k);
    }
  }
  return wrong;
}

/// Integers, whose sums are exact in any order.
int integers(cuda::Device device, const nccl::Meeting& at) {
  NcclCommunicator comm(device, nccl::Group::join(device, at), NcclMode::native);
  CudaBackend b(device, at.rank, DType::bf16);
  const BackendOps<CudaBackend> ops(b);
  Numbers mine, sum;
  for (int i = 0; i < 4099; ++i) {
    mine.push_back(static_cast<float>((i + at.rank) % 7 - 3));
    float all = 0;
    for (int r = 0; r < at.size; ++r) all += static_cast<float>((i + r) % 7 - 3);
    sum.push_back(all);
  }
  DeviceTensor x = b.from_host({1, 4099}, mine);
  comm.all_reduce(ops.buffer(x), ops.buffer(x));
  if (b.to_host(x) == sum) return 0;
  std::printf("FAIL  rank %d: NCCL's sum of integers\n", at.rank);
  return 1;
}

}  // namespace
}  // namespace tpsim::testing

int main(int argc, char** argv) {
  using namespace tpsim;
  if (argc != 4) {
    std::printf("usage: tpsim_nccl_probe RANK SIZE FILE\n");
    return 2;
  }
  try {
    const int rank = std::atoi(argv[1]), size = std::atoi(argv[2]);
    const std::string file = argv[3];
    if (rank == 0) std::printf("%s\n", nccl::Group::version().c_str());
    if (cuda::Device::count() == 0) {
      std::printf("no CUDA device: %s\n", cuda::Device::why_none().c_str());
      return 2;
    }
    cuda::Device device;
    const int wrong =
        testing::compare(device, {file + ".order", rank, size, 60}, NcclMode::rank_order) +
        testing::compare(device, {file + ".native", rank, size, 60}, NcclMode::native) +
        testing::integers(device, {file + ".integers", rank, size, 60});
    std::printf("%s  rank %d of %d\n", wrong == 0 ? "ok  " : "FAIL", rank, size);
    return wrong == 0 ? 0 : 1;
  } catch (const std::exception& e) {
    std::printf("error: rank %s: %s\n", argv[1], e.what());
    return 1;
  }
}
