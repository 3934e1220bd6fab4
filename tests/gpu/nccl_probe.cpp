// SPDX-License-Identifier: MIT
// One process of several that run every collective through NCCL and compare with virtual ranks on
// the same GPU: to the bit in rank order, on integers in NCCL's own order.
// usage: tpsim-nccl-run -n RANKS tpsim_nccl_probe
#include <cstdio>
#include <cstdlib>

#include <tpsim/backend/nccl/nccl_group.hpp>
#include <tpsim/backend/nccl/nccl_ranks.hpp>

#include <tests/support/drive_device.hpp>

namespace tpsim::testing {
namespace {

int compare(const cuda::Device& device, const Meeting& at, NcclOptions options) {
  int wrong = 0;
  NcclRanks world(device, at, options);
  for (const DType rule : {DType::f32, DType::bf16, DType::f16}) {
    Results have(at.size);
    CudaBackend b(device, at.rank, rule);
    world.run([&](Communicator& comm) { drive(comm, b, have, true); });
    const Results wanted = on_virtual_ranks(device, at.size, rule, true);
    const auto& own = have.of[static_cast<std::size_t>(at.rank)];
    const auto& same = wanted.of[static_cast<std::size_t>(at.rank)];
    for (std::size_t k = 0; k < same.size(); ++k) {
      const bool sums = k == 0 || k == 4 || k == 8;  // in another order: not to the bit
      if (options.native && sums) continue;
      if (k < own.size() && own[k] == same[k]) continue;
      ++wrong;
      std::printf("FAIL  rank %d, %s, result %zu differs from virtual ranks\n", at.rank,
                  std::string(name(rule)).c_str(), k);
    }
  }
  return wrong;
}

/// Integers, whose sums are exact in any order.
int integers(const cuda::Device& device, const Meeting& at) {
  NcclRanks world(device, at, {.native = true});
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
  world.run([&](Communicator& comm) { comm.all_reduce(ops.buffer(x), ops.buffer(x)); });
  if (b.to_host(x) == sum) return 0;
  std::printf("FAIL  rank %d: NCCL's sum of integers\n", at.rank);
  return 1;
}

}  // namespace
}  // namespace tpsim::testing

int main() {
  using namespace tpsim;
  const auto number = [](const char* name, int otherwise) {
    const char* const value = std::getenv(name);
    return value == nullptr ? otherwise : std::atoi(value);
  };
  const int rank = number("TPSIM_RANK", 0), size = number("TPSIM_WORLD_SIZE", 1);
  try {
    if (rank == 0) std::printf("%s\n", nccl::Group::version().c_str());
    if (cuda::Device::count() == 0) {
      std::printf("no CUDA device: %s\n", cuda::Device::why_none().c_str());
      return 2;
    }
    const char* const given = std::getenv("TPSIM_NCCL_FILE");
    const std::string file = given == nullptr ? "tpsim-meeting" : given;
    const cuda::Device device =
        cuda::Device::shared(number("TPSIM_LOCAL_RANK", rank) % cuda::Device::count());
    int wrong = testing::integers(device, {file + ".integers", rank, size, 60});
    for (const bool debug : {true, false})
      for (const bool native : {false, true})
        wrong += testing::compare(device,
                                  {file + "." + std::to_string(2 * debug + native), rank, size, 60},
                                  {debug, native});
    std::printf("%s  rank %d of %d\n", wrong == 0 ? "ok  " : "FAIL", rank, size);
    return wrong == 0 ? 0 : 1;
  } catch (const std::exception& e) {
    std::printf("error: rank %d: %s\n", rank, e.what());
    return 1;
  }
}
