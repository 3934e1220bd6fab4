// SPDX-License-Identifier: MIT
// cuda::Device: stream-ordered memory, pinned staging, copies and launches. cuda_product.cu has the
// products.
#include <algorithm>
#include <cstring>

#include "sim/cuda/block_lanes.hpp"
#include "sim/cuda/device_state.hpp"

#include <tpsim/backend/cuda/bodies/pointwise.hpp>

namespace tpsim::cuda {
namespace {

constexpr unsigned block = 256;

template <class Body>
__global__ void __launch_bounds__(block) element_kernel(const Body body) {
  body(Lane{static_cast<Size>(blockIdx.x) * blockDim.x + threadIdx.x,
            static_cast<Size>(gridDim.x) * blockDim.x});
}
template <class Body>
__global__ void __launch_bounds__(block) row_kernel(const Body body) {
  BlockLanes all;
  for (Size row = blockIdx.x; row < body.rows(); row += gridDim.x)
    body(row, Lane{threadIdx.x, blockDim.x}, all);
}

// Enough lanes to fill any GPU; more elements than lanes are taken in turns.
template <class Body>
void each(Device::State& state, const Body& body) {
  const cudaStream_t stream = state.use();
  const Size elements = body.out.size();
  if (elements == 0) return;
  const Size blocks = std::min<Size>((elements + block - 1) / block, 65536);
  element_kernel<<<static_cast<unsigned>(blocks), block, 0, stream>>>(body);
  TPSIM_CUDA(cudaGetLastError());
}
// A block a row; a warp is enough for short ones.
template <class Body>
void by_rows(Device::State& state, const Body& body) {
  const cudaStream_t stream = state.use();
  if (body.rows() == 0) return;
  const unsigned threads = body.columns() <= 512 ? 32 : block;
  const Size blocks = std::min<Size>(body.rows(), Size{1} << 30);
  row_kernel<<<static_cast<unsigned>(blocks), threads, 0, stream>>>(body);
  TPSIM_CUDA(cudaGetLastError());
}

// A block of rows, in one piece where neither side has gaps (a pitch has a limit, a length none).
void copy_rows(cudaStream_t stream, ConstMatrix in, Matrix out, cudaMemcpyKind kind) {
  if (out.size() == 0) return;
  const auto bytes = [&](Size n) { return static_cast<std::size_t>(n * bytes_of(out.type)); };
  if (!in.has_gaps() && !ConstMatrix(out).has_gaps())
    TPSIM_CUDA(cudaMemcpyAsync(out.data, in.data, bytes(out.size()), kind, stream));
  else
    TPSIM_CUDA(cudaMemcpy2DAsync(out.data, bytes(out.stride), in.data, bytes(in.stride),
                                 bytes(out.cols), static_cast<std::size_t>(out.rows), kind,
                                 stream));
}

// Both are fatal to the question, not to the process: there is no device.
bool means_none(cudaError_t status) {
  return status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver ||
         status == cudaErrorStubLibrary;
}

}  // namespace

bool Device::is_built() { return true; }
int Device::count() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (means_none(status)) {
    (void)cudaGetLastError();  // the answer is no, which is no error for later calls
    return 0;
  }
  TPSIM_CUDA(status);
  return devices;
}
std::string Device::why_none() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  (void)cudaGetLastError();
  return status == cudaSuccess ? "the driver lists none" : cudaGetErrorString(status);
}
std::string Device::versions() {
  const auto text = [](std::size_t n, std::size_t major, std::size_t minor) {
    return std::to_string(n / major) + "." + std::to_string(n % major / minor);
  };
  int runtime = 0, driver = 0;
  TPSIM_CUDA(cudaRuntimeGetVersion(&runtime));
  TPSIM_CUDA(cudaDriverGetVersion(&driver));  // 0 where there is none
  const std::size_t lt = cublas_lt().cublasLtGetVersion();
  return "CUDA runtime " + text(static_cast<std::size_t>(runtime), 1000, 10) + ", driver " +
         (driver == 0 ? "none" : text(static_cast<std::size_t>(driver), 1000, 10)) + ", cuBLASLt " +
         text(lt, 10000, 100) + "." + std::to_string(lt % 100);
}
Device Device::shared(int ordinal) {
  // Never destroyed: CUDA may have unloaded itself by the time statics go.
  static const Device* const device = new Device(ordinal);
  return *device;
}

Device::Device(int ordinal) : state_(std::make_shared<State>(ordinal)) {
  state_->use();
  TPSIM_CUDA(cudaStreamCreateWithFlags(&state_->stream, cudaStreamNonBlocking));
  TPSIM_CUDA(cublas_lt().cublasLtCreate(&state_->cublas));
  TPSIM_CUDA(cudaMalloc(&state_->workspace, State::workspace_bytes));
  // Freed memory stays with the process, for the next tensor.
  cudaMemPool_t pool = nullptr;
  TPSIM_CUDA(cudaDeviceGetDefaultMemPool(&pool, ordinal));
  std::uint64_t all = UINT64_MAX;
  TPSIM_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
}

std::string Device::name() const {
  cudaDeviceProp properties{};
  TPSIM_CUDA(cudaGetDeviceProperties(&properties, state_->ordinal));
  return std::string(properties.name) + ", compute capability " + std::to_string(properties.major) +
         "." + std::to_string(properties.minor);
}

void Device::wait() { TPSIM_CUDA(cudaStreamSynchronize(state_->use())); }

void Device::Free::operator()(void* memory) const noexcept {
  cudaError_t status = cudaSetDevice(state->ordinal);
  if (status == cudaSuccess) status = cudaFreeAsync(memory, state->stream);
  if (status != cudaSuccess) state->free_failed = status;
}

Device::Buffer Device::allocate(Size bytes) {
  void* memory = nullptr;
  const cudaStream_t stream = state_->use();
  if (bytes > 0) TPSIM_CUDA(cudaMallocAsync(&memory, static_cast<std::size_t>(bytes), stream));
  return Buffer(memory, Free{state_});
}

void* Device::staging() {
  state_->use();
  return state_->ring.take();
}

void Device::send(Matrix out) {
  const cudaStream_t stream = state_->use();
  copy_rows(stream, {state_->ring.taken(), out.rows, out.cols, out.cols, out.type}, out,
            cudaMemcpyHostToDevice);
  state_->ring.sent(stream);
}

Device::Buffer Device::array(const void* host, Size bytes) {
  Buffer out = allocate(bytes);
  const cudaStream_t stream = state_->use();
  for (Size done = 0; done < bytes; done += staging_bytes) {
    const auto some = static_cast<std::size_t>(std::min(staging_bytes, bytes - done));
    void* const pinned = state_->ring.take();
    std::memcpy(pinned, static_cast<const unsigned char*>(host) + done, some);
    TPSIM_CUDA(cudaMemcpyAsync(static_cast<unsigned char*>(out.get()) + done, pinned, some,
                               cudaMemcpyHostToDevice, stream));
    state_->ring.sent(stream);
  }
  return out;
}

void Device::download(ConstMatrix in, void* host) {
  const cudaStream_t stream = state_->use();
  copy_rows(stream, in, {host, in.rows, in.cols, in.cols, in.type}, cudaMemcpyDeviceToHost);
  TPSIM_CUDA(cudaStreamSynchronize(stream));
}

void Device::copy(ConstMatrix in, Matrix out) {
  if (in.type != out.type) return each(*state_, body::Convert{in, out});
  copy_rows(state_->use(), in, out, cudaMemcpyDeviceToDevice);
}

}  // namespace tpsim::cuda

#include "sim/cuda/launches.hpp"
