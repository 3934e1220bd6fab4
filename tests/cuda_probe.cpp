// SPDX-License-Identifier: MIT
// The layers on the CUDA backend, unchanged: they compile, link, and give the bits of full() on
// every GPU found. tests/cuda runs the same on the CPU. With --versions it only says what is there.
#include <cstdio>
#include <cstring>

#include <tpsim/backend/cuda/cuda_backend.hpp>
#include <tpsim/layers/linear.hpp>
#include <tpsim/layers/mlp.hpp>

#include <tests/support/device_probe.hpp>

namespace tpsim {

template class LinearBase<CudaBackend>;
template class ReplicatedLinear<CudaBackend>;
template class ColumnParallelLinear<CudaBackend>;
template class MergedColumnParallelLinear<CudaBackend>;
template class QKVParallelLinear<CudaBackend>;
template class RowParallelLinear<CudaBackend>;
template class GatedMLP<CudaBackend>;

namespace {

using namespace testing;

void probe(int ordinal) {
  const int before = failures;
  cuda::Device device(ordinal);
  const std::string where = device.name();
  DeviceProbe(std::move(device), where).run();
  std::printf("%s  %s\n", failures == before ? "ok  " : "FAIL", where.c_str());
}

// Where there is no device, the checks of return codes are what can be seen.
void expect_missing_device() {
  try {
    const cuda::Device none(0);
    expect(false, "a device that is not there is refused");
  } catch (const cuda::Error& e) {
    expect(std::strstr(e.what(), "sim/cuda/") != nullptr, "an error names file and line");
    std::printf("ok    refused: %s\n", e.what());
  }
}

}  // namespace
}  // namespace tpsim

// 0: every device gives the bits of full(); 1: one does not; 2: there is none, so nothing was
// shown.
int main(int argc, char** argv) {
  using namespace tpsim;
  const bool versions_alone = argc > 1 && std::strcmp(argv[1], "--versions") == 0;
  int devices = 0;
  try {
    std::printf("%s\n", cuda::Device::versions().c_str());
    devices = cuda::Device::count();
    for (int i = 0; i < devices && !versions_alone; ++i) probe(i);
    if (devices == 0) {
      std::printf("no CUDA device: %s\n", cuda::Device::why_none().c_str());
      if (!versions_alone) expect_missing_device();
    }
  } catch (const std::exception& e) {
    expect(false, e.what());
  }
  return failures > 0 ? 1 : devices == 0 ? 2 : 0;
}
