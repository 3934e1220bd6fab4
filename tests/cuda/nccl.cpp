// SPDX-License-Identifier: MIT
// The NCCL communicator among threads of this process, its device on the CPU: the bits of virtual
// ranks in rank order, the bound of a sum in NCCL's own.
#include <atomic>
#include <cmath>
#include <thread>

#include <tpsim/backend/nccl/nccl_communicator.hpp>
#include <tpsim/comm/virtual_ranks.hpp>
#include <tpsim/layers/linear.hpp>

#include <tests/support/cuda_fixture.hpp>
#include <tests/support/drive_device.hpp>

namespace {

using namespace tpsim;
using namespace tpsim::test_cuda;
using namespace tpsim::testing;

/// f(comm, backend) on every rank of a group of threads. The first exception is rethrown.
void on_threads(int ranks, NcclMode mode, DType rule,
                const std::function<void(Communicator&, CudaBackend&)>& f,
                double time_limit_s = 60) {
  static std::atomic<int> number{0};
  const std::string file = "meeting " + std::to_string(number++);
  std::vector<std::exception_ptr> failed(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      try {
        cuda::Device device;
        NcclCommunicator comm(device, nccl::Group::join(device, {file, r, ranks, time_limit_s}),
                              mode);
        CudaBackend b(device, r, rule);
        f(comm, b);
      } catch (...) {
        failed[static_cast<std::size_t>(r)] = std::current_exception();
      }
    });
  for (std::thread& t : threads) t.join();
  for (const auto& e : failed)
    if (e) std::rethrow_exception(e);
}

TEST_CASE("nccl: in rank order every collective has the bits of virtual ranks") {
  for (const DType rule : rules)
    for (const int ranks : {1, 2, 3, 4}) {
      INFO(name(rule) << " on " << ranks);
      Results have(ranks);
      on_threads(ranks, NcclMode::rank_order, rule,
                 [&](Communicator& comm, CudaBackend& b) { drive(comm, b, have, true); });
      CHECK(have.of == on_virtual_ranks(cuda::Device(), ranks, rule, true).of);
    }
}

TEST_CASE("nccl: its own collectives move the same numbers and sum within the order's bound") {
  for (const DType rule : rules)
    for (const int ranks : {1, 2, 4}) {
      INFO(name(rule) << " on " << ranks);
      Results have(ranks);
      on_threads(ranks, NcclMode::native, rule,
                 [&](Communicator& comm, CudaBackend& b) { drive(comm, b, have, false); });
      const Results wanted = on_virtual_ranks(cuda::Device(), ranks, rule, false);
      const double unit = eigen::rounding_of(rule).unit;
      for (std::size_t r = 0; r < have.of.size(); ++r) {
        REQUIRE(have.of[r].size() == wanted.of[r].size());
        for (std::size_t k = 0; k < have.of[r].size(); ++k) {
          const Numbers &a = have.of[r][k], &b = wanted.of[r][k];
          REQUIRE(a.size() == b.size());
          double off = 0;
          for (std::size_t i = 0; i < a.size(); ++i)
            off = std::max(off, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
          const bool sums = k == 0 || k == 4 || k == 8;
          CHECK(off <= (sums ? 2 * ranks * unit * 9 * ranks : 0));
        }
      }
    }
}

TEST_CASE("nccl: a row-parallel layer is full() on integers over threads") {
  EigenOptions integers;
  integers.values = {eigen::ValueKind::integer, 5, eigen::integer_range(DType::bf16, 24)};
  const FullTensor w = test_eigen::full("w", Shape(10, 24));
  const EigenBackend<float> host(0, DType::bf16, integers);
  const auto full_x = host.activation("x", {6, 24});
  const auto wanted = host.linear(full_x, test_eigen::load(host, w));
  for (const NcclMode mode : {NcclMode::rank_order, NcclMode::native}) {
    std::vector<Numbers> have(4);
    on_threads(4, mode, DType::bf16, [&](Communicator& comm, CudaBackend& plain) {
      CudaBackend b(plain.device(), comm.rank(), DType::bf16, {integers.values, ReduceOrder::rank});
      RowParallelLinear<CudaBackend> layer(b, comm, 24, 10, {.input_is_parallel = false});
      layer.weight_loader(layer.weight, w);
      const Numbers numbers(full_x.value.data(), full_x.value.data() + full_x.value.size());
      have[static_cast<std::size_t>(comm.rank())] =
          b.to_host(layer.forward(b.from_host({6, 24}, numbers)));
    });
    for (const Numbers& y : have)
      CHECK(y == Numbers(wanted.value.data(), wanted.value.data() + wanted.value.size()));
  }
}

TEST_CASE("nccl: calls that do not match are told to every rank in rank order") {
  std::atomic<int> told{0};
  on_threads(3, NcclMode::rank_order, DType::f32, [&](Communicator& comm, CudaBackend& b) {
    const BackendOps<CudaBackend> ops(b);
    DeviceTensor x = numbered(b, comm.rank(), {2, 2});
    try {
      if (comm.rank() == 1)
        comm.all_gather(ops.buffer(x), ops.buffer(x), 1);
      else
        comm.all_reduce(ops.buffer(x), ops.buffer(x));
    } catch (const LayoutError& e) {
      const std::string text = e.what();
      told += text.find("rank 1 calls all_gather [2, 2] f32 dim 1") != std::string::npos &&
              text.find("all_reduce(sum) [2, 2] f32") != std::string::npos;
    }
  });
  CHECK(told == 3);
}

TEST_CASE("nccl: a rank that ends early leaves an error with the others in place of a hang") {
  for (const NcclMode mode : {NcclMode::rank_order, NcclMode::native})
    CHECK_THROWS_AS(on_threads(
                        2, mode, DType::f32,
                        [&](Communicator& comm, CudaBackend& b) {
                          if (comm.rank() == 1) return;
                          const BackendOps<CudaBackend> ops(b);
                          DeviceTensor x = numbered(b, 0, {2, 2});
                          comm.all_reduce(ops.buffer(x), ops.buffer(x));
                        },
                        0.2),
                    cuda::Error);
}

}  // namespace
