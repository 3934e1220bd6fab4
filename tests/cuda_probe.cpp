// SPDX-License-Identifier: MIT
// The layers on the CUDA backend, unchanged: they compile, link, and give the bits of full().
//
// Runs on the host with the kernels' own bodies (1 and 32 lanes), and on every CUDA device found.
#include <cstdio>
#include <cstring>

#include <tpsim/backend/cuda/cuda_backend.hpp>
#include <tpsim/backend/cuda/host_device.hpp>
#include <tpsim/layers/linear.hpp>
#include <tpsim/layers/mlp.hpp>

#include <tests/support/device_probe.hpp>

namespace tpsim {

static_assert(Backend<CudaBackend>);
template class LinearBase<CudaBackend>;
template class ReplicatedLinear<CudaBackend>;
template class ColumnParallelLinear<CudaBackend>;
template class MergedColumnParallelLinear<CudaBackend>;
template class QKVParallelLinear<CudaBackend>;
template class RowParallelLinear<CudaBackend>;
template class GatedMLP<CudaBackend>;

namespace {

using namespace testing;

template <class D>
void probe(D device) {
  const int before = failures;
  const std::string where = device.name();
  DeviceProbe<D>(std::move(device)).run();
  std::printf("%s  %s\n", failures == before ? "ok  " : "FAIL", where.c_str());
}

// Where there is no device, the checks of return codes are what can be seen.
void expect_missing_device() {
  try {
    const cuda::Device none(0);
    expect(false, "a device that is not there is refused");
  } catch (const cuda::Error& e) {
    expect(std::strstr(e.what(), "cuda_ops.cu:") != nullptr, "an error names file and line");
    std::printf("ok    refused: %s\n", e.what());
  }
}

}  // namespace
}  // namespace tpsim

int main() {
  using namespace tpsim;
  try {
    for (const Index lanes : {1, 32}) probe(cuda::HostDevice(lanes));
    const int devices = cuda::Device::count();
    for (int i = 0; i < devices; ++i) probe(cuda::Device(i));
    if (devices == 0) {
      std::printf("no CUDA device\n");
      expect_missing_device();
    }
  } catch (const std::exception& e) {
    expect(false, e.what());
  }
  return failures == 0 ? 0 : 1;
}
