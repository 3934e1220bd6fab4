// SPDX-License-Identifier: MIT
// NCCL's ranks as threads of this process, each with a network end of its own, their device and
// NCCL on the host: the bits of virtual ranks in rank order, the bound of a sum in NCCL's own, and
// the findings of virtual ranks.
#include <atomic>
#include <cmath>
#include <filesystem>
#include <thread>

#include <tpsim/backend/field/field_backend.hpp>
#include <tpsim/backend/nccl/nccl_group.hpp>
#include <tpsim/backend/nccl/nccl_ranks.hpp>
#include <tpsim/comm/virtual_ranks.hpp>
#include <tpsim/layers/linear.hpp>

#include <tests/support/cuda_fixture.hpp>
#include <tests/support/drive_device.hpp>
#include <tests/support/test_files.hpp>

namespace {

using namespace tpsim;
using namespace tpsim::test_cuda;
using namespace tpsim::testing;

/// f(world) on every rank of a job of threads. @return what each ended in, in words; "" for well
std::vector<std::string> ends_on_threads(int ranks, NcclOptions options,
                                         const std::function<void(NcclRanks&)>& f,
                                         double time_limit_s = 60) {
  const test::TempDir folder;
  std::vector<std::string> ends(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      try {
        NcclRanks world(cuda::Device(),
                        {(folder.path() / "meeting").string(), r, ranks, time_limit_s}, options);
        f(world);
      } catch (const std::exception& e) {
        ends[static_cast<std::size_t>(r)] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(std::filesystem::is_empty(folder.path()));
  return ends;
}
void on_threads(int ranks, NcclOptions options, const std::function<void(NcclRanks&)>& f) {
  CHECK(ends_on_threads(ranks, options, f) ==
        std::vector<std::string>(static_cast<std::size_t>(ranks)));
}

TEST_CASE("nccl: in rank order every collective has the bits of virtual ranks") {
  for (const DType rule : rules)
    for (const int ranks : {1, 2, 3, 4})
      for (const bool debug : {true, false}) {
        INFO(name(rule) << " on " << ranks << ", debug " << debug);
        Results have(ranks);
        on_threads(ranks, {.debug = debug}, [&](NcclRanks& world) {
          world.run([&](Communicator& comm) {
            CudaBackend b(cuda::Device(), comm.rank(), rule);
            drive(comm, b, have, true);
          });
        });
        CHECK(have.of == on_virtual_ranks(cuda::Device(), ranks, rule, true).of);
      }
}

TEST_CASE("nccl: its own collectives move the same numbers and sum within the order's bound") {
  for (const DType rule : rules)
    for (const int ranks : {1, 2, 4}) {
      INFO(name(rule) << " on " << ranks);
      Results have(ranks);
      on_threads(ranks, {.native = true}, [&](NcclRanks& world) {
        world.run([&](Communicator& comm) {
          CudaBackend b(cuda::Device(), comm.rank(), rule);
          drive(comm, b, have, true);
        });
      });
      const Results wanted = on_virtual_ranks(cuda::Device(), ranks, rule, true);
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

TEST_CASE("nccl: NCCL's own order shows in sums that round") {
  Results have(4);
  on_threads(4, {.native = true}, [&](NcclRanks& world) {
    world.run([&](Communicator& comm) {
      CudaBackend b(cuda::Device(), comm.rank(), DType::bf16);
      drive(comm, b, have, true);
    });
  });
  CHECK(have.of != on_virtual_ranks(cuda::Device(), 4, DType::bf16, true).of);
}

TEST_CASE("nccl: a row-parallel layer is full() on integers over threads") {
  EigenOptions integers;
  integers.values = {eigen::ValueKind::integer, 5, eigen::integer_range(DType::bf16, 24)};
  const FullTensor w = test_eigen::full("w", Shape(10, 24));
  const EigenBackend<float> host(0, DType::bf16, integers);
  const auto full_x = host.activation("x", {6, 24});
  const auto wanted = host.linear(full_x, test_eigen::load(host, w));
  for (const bool native : {false, true}) {
    std::vector<Numbers> have(4);
    on_threads(4, {.native = native}, [&](NcclRanks& world) {
      world.run([&](Communicator& comm) {
        CudaBackend b(cuda::Device(), comm.rank(), DType::bf16,
                      {integers.values, ReduceOrder::rank});
        RowParallelLinear<CudaBackend> layer(b, comm, 24, 10, {.input_is_parallel = false});
        layer.weight_loader(layer.weight, w);
        const Numbers numbers(full_x.value.data(), full_x.value.data() + full_x.value.size());
        have[static_cast<std::size_t>(comm.rank())] =
            b.to_host(layer.forward(b.from_host({6, 24}, numbers)));
      });
    });
    for (const Numbers& y : have)
      CHECK(y == Numbers(wanted.value.data(), wanted.value.data() + wanted.value.size()));
  }
}

TEST_CASE("nccl: tensors of the host's backends cross packed, with the bits of virtual ranks") {
  const auto program = [](Communicator& comm, std::vector<Bytes>& out) {
    EigenBackend<float> b(comm.rank(), DType::bf16);
    const BackendOps<EigenBackend<float>> ops(b);
    auto x = b.activation("x" + std::to_string(comm.rank()), {3, 4});
    comm.all_reduce(ops.buffer(x), ops.buffer(x));
    out.push_back(b.pack(x));
    x = b.activation("y" + std::to_string(comm.rank()), {2, 1 + comm.rank()});
    comm.all_gather(ops.buffer(x), ops.buffer(x), 1);
    out.push_back(b.pack(x));
    const bool root = comm.rank() == comm.size() - 1;
    x = b.activation("z" + std::to_string(comm.rank()), {comm.size(), 3});
    comm.gather(ops.buffer(x), root ? ops.buffer(x) : ops.none(), comm.size() - 1, 0);
    out.push_back(b.pack(x));
    x = b.activation("s" + std::to_string(comm.rank()), {2 * comm.size(), 3});
    auto part = x;
    comm.reduce_scatter(ops.buffer(x), ops.buffer(part), 0);
    out.push_back(b.pack(part));
    comm.all_to_all(ops.buffer(x), ops.buffer(part), 0);
    out.push_back(b.pack(part));
    comm.broadcast(ops.buffer(x), ops.buffer(x), 0);
    out.push_back(b.pack(x));
  };
  for (const int ranks : {1, 2, 3}) {
    std::vector<std::vector<Bytes>> have(static_cast<std::size_t>(ranks)), wanted = have;
    VirtualRanks here(ranks);
    here.run([&](Communicator& c) { program(c, wanted[static_cast<std::size_t>(c.rank())]); });
    on_threads(ranks, {}, [&](NcclRanks& world) {
      world.run([&](Communicator& c) { program(c, have[static_cast<std::size_t>(c.rank())]); });
    });
    CHECK(have == wanted);
  }
}

TEST_CASE("nccl: calls that do not match are the finding of virtual ranks on every rank") {
  const auto program = [](Communicator& comm) {
    CudaBackend b(cuda::Device(), comm.rank());
    const BackendOps<CudaBackend> ops(b);
    DeviceTensor x = numbered(b, comm.rank(), {2, 2});
    if (comm.rank() == 1)
      comm.all_gather(ops.buffer(x), ops.buffer(x), 1);
    else
      comm.all_reduce(ops.buffer(x), ops.buffer(x));
  };
  std::string wanted;
  VirtualRanks here(3);
  try {
    here.run(program);
  } catch (const CollectiveMismatch& e) {
    wanted = e.what();
  }
  REQUIRE_FALSE(wanted.empty());
  CHECK(ends_on_threads(3, {}, [&](NcclRanks& world) { world.run(program); }) ==
        std::vector<std::string>(3, wanted));
}

TEST_CASE("nccl: a rank that returns early is a finding, and the ranks are of use afterwards") {
  std::atomic<int> found{0}, sums{0};
  on_threads(3, {}, [&](NcclRanks& world) {
    try {
      world.run([](Communicator& comm) {
        if (comm.rank() != 2) comm.barrier();
      });
    } catch (const CollectiveMismatch& e) {
      found += std::string(e.what()).find("rank 2") != std::string::npos;
    }
    world.run([&](Communicator& comm) {
      CudaBackend b(cuda::Device(), comm.rank());
      const BackendOps<CudaBackend> ops(b);
      DeviceTensor x = b.from_host({1, 1}, Numbers{1});
      comm.all_reduce(ops.buffer(x), ops.buffer(x));
      sums += b.to_host(x) == Numbers{3};
    });
    if (world.trace().size() != 1) throw std::runtime_error("the trace has other calls");
  });
  CHECK(found == 3);
  CHECK(sums == 3);
}

TEST_CASE("nccl: a rank that fails in the middle of a collective ends it for all, with its error") {
  // Wherever it fails: before it has told of its tensor, before it sends it, after.
  for (int failing = 0; failing < 6; ++failing) {
    std::atomic<bool> failed{false};
    const auto ends = ends_on_threads(3, {}, [&](NcclRanks& world) {
      world.run([&](Communicator& comm) {
        CudaBackend b(cuda::Device(), comm.rank());
        const BackendOps<CudaBackend> ops(b);
        DeviceTensor x = numbered(b, comm.rank(), {2, 2});
        if (comm.rank() == 1) cuda::HostDevice::failing_allocation = failing;
        comm.all_reduce(ops.buffer(x), ops.buffer(x));
        failed = failed || cuda::HostDevice::failing_allocation >= 0;
        cuda::HostDevice::failing_allocation = -1;
        comm.barrier();
      });
    });
    INFO("allocation " << failing);
    REQUIRE_FALSE(failed);  // there are as many
    CHECK(ends[1] == "the host device is full");
    for (const std::size_t r : {0U, 2U}) CHECK(ends[r] == "rank 1: the host device is full");
  }
}

TEST_CASE("nccl: a group that is not complete within its time limit is an error, no hang") {
  cuda::Device device;
  nccl::Seat seat{nccl::Group::new_id(), 0, 2, 0.2, [] {}};
  const auto end = [&]() -> std::string {
    try {
      (void)nccl::Group::join(device, seat);
      return "met";
    } catch (const std::exception& e) {
      return e.what();
    }
  };
  CHECK(end().find("did not end within 0.2 s") != std::string::npos);
  seat.id = nccl::Group::new_id();
  seat.time_limit_s = 60;
  seat.watch = [] { throw std::runtime_error("rank 1 is gone"); };
  CHECK(end() == "rank 1 is gone");
}

TEST_CASE("nccl: ranks that do not come are named after the time limit") {
  const test::TempDir folder;
  const auto end_of = [&](const Meeting& m) -> std::string {
    try {
      NcclRanks world(cuda::Device(), m);
      return "met";
    } catch (const MeetingError& e) {
      return e.what();
    }
  };
  const std::string file = (folder.path() / "meeting").string();
  CHECK(end_of({file, 0, 3, 0.2}).find("for rank 1, 2 of 3") != std::string::npos);
  CHECK(std::filesystem::is_empty(folder.path()));
  CHECK(end_of({file, 1, 2, 0.2}).find("rank 1 of 2 has not met rank 0") != std::string::npos);
  CHECK(end_of({file, 2, 2, 0.2}).find("no rank") != std::string::npos);
  CHECK(end_of({(folder.path() / "no" / "m").string(), 0, 2, 0.2}).find("cannot write") !=
        std::string::npos);
  folder.write("meeting", "something else");
  CHECK(end_of({file, 0, 2, 0.2}).find("is there already") != std::string::npos);
  CHECK(end_of({file, 1, 2, 0.2}).find("no meeting file") != std::string::npos);
}

}  // namespace
