// SPDX-License-Identifier: MIT
// What tests/cuda_probe.cpp asks of a GPU, on the CPU.
#include <tests/support/cuda_fixture.hpp>
#include <tests/support/device_probe.hpp>

namespace {

TEST_CASE("cuda: layers of integers are full() to the bit at every tp") {
  for (const tpsim::cuda::Size lanes : {1, 32}) {
    const tpsim::test_cuda::WithLanes with(lanes);
    tpsim::testing::DeviceProbe(tpsim::cuda::Device(), "host").run();
  }
  CHECK(tpsim::testing::failures == 0);
}

}  // namespace
