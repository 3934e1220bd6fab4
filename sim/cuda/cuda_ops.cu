// SPDX-License-Identifier: MIT
// cuda::Device: stream-ordered memory, copies, cuBLAS products and the element-wise kernels.
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <tpsim/backend/cuda/cuda_ops.hpp>
#include <tpsim/backend/cuda/kernel_bodies.hpp>

namespace tpsim::cuda {
namespace {

[[noreturn]] void fail(const char* call, const char* why, const char* file, int line) {
  throw Error(std::string(call) + " failed: " + why + " (" + file + ":" + std::to_string(line) +
              ")");
}
void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status != cudaSuccess) fail(call, cudaGetErrorString(status), file, line);
}
void check(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(call, cublasGetStatusString(status), file, line);
}
#define TPSIM_CUDA(call) check((call), #call, __FILE__, __LINE__)

template <class Body>
__global__ void kernel(Body body) {
  body(Lane{static_cast<Size>(blockIdx.x) * blockDim.x + threadIdx.x,
            static_cast<Size>(gridDim.x) * blockDim.x});
}

// Enough lanes to fill any GPU; more elements than lanes are taken in turns.
template <class Body>
void launch(cudaStream_t stream, const Body& body) {
  constexpr Size threads = 256, most_blocks = 65536;
  const Size elements = body.out.rows * body.out.cols;
  if (elements == 0) return;
  const Size blocks = std::min((elements + threads - 1) / threads, most_blocks);
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, stream>>>(body);
  TPSIM_CUDA(cudaGetLastError());
}

// A block of rows, in one piece where neither side has gaps (a pitch has a limit, a length none).
void copy_rows(cudaStream_t stream, ConstMatrix in, Matrix out, cudaMemcpyKind kind) {
  if (out.rows == 0 || out.cols == 0) return;
  const auto bytes = [](Size n) { return static_cast<std::size_t>(n) * sizeof(float); };
  if (out.rows == 1 || (in.stride == in.cols && out.stride == out.cols))
    TPSIM_CUDA(cudaMemcpyAsync(out.data, in.data, bytes(out.rows * out.cols), kind, stream));
  else
    TPSIM_CUDA(cudaMemcpy2DAsync(out.data, bytes(out.stride), in.data, bytes(in.stride),
                                 bytes(out.cols), static_cast<std::size_t>(out.rows), kind,
                                 stream));
}

}  // namespace

struct Device::State {
  int ordinal = 0;
  cudaStream_t stream = nullptr;
  cublasHandle_t cublas = nullptr;
  cudaError_t free_failed = cudaSuccess;  // a deleter cannot throw: the next call does

  explicit State(int device) : ordinal(device) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  // Nothing can be done about a failure here; the process keeps its context until it ends.
  ~State() {
    (void)cudaSetDevice(ordinal);
    if (cublas != nullptr) (void)cublasDestroy(cublas);
    if (stream != nullptr) (void)cudaStreamDestroy(stream);
  }
  /// Before every use: CUDA's current device belongs to the thread, not to us.
  cudaStream_t use() {
    TPSIM_CUDA(std::exchange(free_failed, cudaSuccess));
    TPSIM_CUDA(cudaSetDevice(ordinal));
    return stream;
  }
};

int Device::count() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver ||
      status == cudaErrorStubLibrary) {
    (void)cudaGetLastError();  // the answer is no, which is no error for later calls
    return 0;
  }
  TPSIM_CUDA(status);
  return devices;
}

Device::Device(int ordinal) : state_(std::make_shared<State>(ordinal)) {
  state_->use();
  TPSIM_CUDA(cudaStreamCreateWithFlags(&state_->stream, cudaStreamNonBlocking));
  TPSIM_CUDA(cublasCreate(&state_->cublas));
  TPSIM_CUDA(cublasSetStream(state_->cublas, state_->stream));
  TPSIM_CUDA(cublasSetMathMode(state_->cublas, CUBLAS_PEDANTIC_MATH));
}

std::string Device::name() const {
  cudaDeviceProp properties{};
  TPSIM_CUDA(cudaGetDeviceProperties(&properties, state_->ordinal));
  return std::string(properties.name) + ", compute capability " + std::to_string(properties.major) +
         "." + std::to_string(properties.minor);
}

void Device::Free::operator()(float* memory) const noexcept {
  cudaError_t status = cudaSetDevice(state->ordinal);
  if (status == cudaSuccess) status = cudaFreeAsync(memory, state->stream);
  if (status != cudaSuccess) state->free_failed = status;
}

Device::Buffer Device::allocate(Size elements) {
  void* memory = nullptr;
  const cudaStream_t stream = state_->use();
  if (elements > 0)
    TPSIM_CUDA(
        cudaMallocAsync(&memory, static_cast<std::size_t>(elements) * sizeof(float), stream));
  return Buffer(static_cast<float*>(memory), Free{state_});
}

void Device::fill_bits(Matrix out, std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  launch(state_->use(), body::Fill{out, value});
}

void Device::upload(const float* host, Matrix out) {
  const cudaStream_t stream = state_->use();
  copy_rows(stream, {host, out.rows, out.cols, out.cols}, out, cudaMemcpyHostToDevice);
  TPSIM_CUDA(cudaStreamSynchronize(stream));
}

void Device::download(ConstMatrix in, float* host) {
  const cudaStream_t stream = state_->use();
  copy_rows(stream, in, {host, in.rows, in.cols, in.cols}, cudaMemcpyDeviceToHost);
  TPSIM_CUDA(cudaStreamSynchronize(stream));
}

void Device::copy(ConstMatrix in, Matrix out) {
  copy_rows(state_->use(), in, out, cudaMemcpyDeviceToDevice);
}

// cuBLAS is column-major: it sees w as [in, out], x as [in, tokens] and makes y^T = w^T x.
void Device::linear(ConstMatrix x, ConstMatrix w, Matrix y) {
  state_->use();
  if (y.rows == 0 || y.cols == 0) return;
  if (x.cols == 0) return fill_bits(y, 0);
  const float one = 1, zero = 0;
  TPSIM_CUDA(cublasGemmEx_64(state_->cublas, CUBLAS_OP_T, CUBLAS_OP_N, y.cols, y.rows, x.cols, &one,
                             w.data, CUDA_R_32F, w.stride, x.data, CUDA_R_32F, x.stride, &zero,
                             y.data, CUDA_R_32F, y.stride, CUBLAS_COMPUTE_32F_PEDANTIC,
                             CUBLAS_GEMM_DEFAULT));
}

void Device::add_bias(ConstMatrix y, const float* bias, Matrix out) {
  launch(state_->use(), body::AddBias{y, bias, out});
}
void Device::mul(ConstMatrix a, ConstMatrix b, Matrix out) {
  launch(state_->use(), body::Mul{a, b, out});
}
void Device::silu(ConstMatrix a, Matrix out) { launch(state_->use(), body::Silu{a, out}); }

void Device::reduce(ReduceOp op, const ConstMatrix* parts, int count, Matrix out) {
  const cudaStream_t stream = state_->use();
  reduce_in_order(op, parts, count, out, [stream](const auto& body) { launch(stream, body); });
}

}  // namespace tpsim::cuda
