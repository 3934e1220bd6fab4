// SPDX-License-Identifier: MIT
// cuda::Device::product by cuBLASLt.
#include <cstdint>

#include "sim/cuda/device_state.hpp"

namespace tpsim::cuda {
namespace {

cudaDataType_t data_type(Type t) {
  return t == Type::f32 ? CUDA_R_32F : t == Type::bf16 ? CUDA_R_16BF : CUDA_R_16F;
}

/// A cuBLASLt object that is destroyed when its scope ends.
template <class Handle, cublasStatus_t (*CublasLt::*destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle != nullptr) (void)(cublas_lt().*destroy)(handle);
  }
  Handle handle = nullptr;
};
using Operation = Owned<cublasLtMatmulDesc_t, &CublasLt::cublasLtMatmulDescDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, &CublasLt::cublasLtMatmulPreferenceDestroy>;

/// cuBLAS is column-major: a row-major matrix is its transpose there.
struct Layout : Owned<cublasLtMatrixLayout_t, &CublasLt::cublasLtMatrixLayoutDestroy> {
  Layout(const ConstMatrix& m, Size count, Size step) {
    TPSIM_CUDA(cublas_lt().cublasLtMatrixLayoutCreate(
        &handle, data_type(m.type), static_cast<std::uint64_t>(m.cols),
        static_cast<std::uint64_t>(m.rows), m.stride));
    if (count == 1) return;
    const auto batch = static_cast<std::int32_t>(count);
    const auto offset = static_cast<std::int64_t>(step);
    TPSIM_CUDA(cublas_lt().cublasLtMatrixLayoutSetAttribute(
        handle, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch));
    TPSIM_CUDA(cublas_lt().cublasLtMatrixLayoutSetAttribute(
        handle, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &offset, sizeof offset));
  }
};

template <class T>
void set(const Operation& o, cublasLtMatmulDescAttributes_t what, const T& value) {
  TPSIM_CUDA(cublas_lt().cublasLtMatmulDescSetAttribute(o.handle, what, &value, sizeof value));
}
template <class T>
void set(const Preference& p, cublasLtMatmulPreferenceAttributes_t what, const T& value) {
  TPSIM_CUDA(
      cublas_lt().cublasLtMatmulPreferenceSetAttribute(p.handle, what, &value, sizeof value));
}

/// The power of 2, at most 256, that divides the address of every matrix of a batch.
std::uint32_t alignment_of(const ConstMatrix& m, Size count, Size step) {
  std::uintptr_t bits = reinterpret_cast<std::uintptr_t>(m.data) | 256U;
  if (count > 1) bits |= static_cast<std::uintptr_t>(step * bytes_of(m.type));
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

struct Plan {
  Operation operation;
  Layout b, a, y;
  explicit Plan(const Product& p)
      : b(p.b, p.count, p.b_step), a(p.a, p.count, p.a_step), y(p.y, p.count, p.y_step) {
    // f32 by f32 instructions alone, unless TF32 is asked for; sums of 2-byte factors in f32.
    const cublasComputeType_t compute = p.a.type != Type::f32 ? CUBLAS_COMPUTE_32F
                                        : p.tf32              ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                              : CUBLAS_COMPUTE_32F_PEDANTIC;
    TPSIM_CUDA(cublas_lt().cublasLtMatmulDescCreate(&operation.handle, compute, CUDA_R_32F));
    // y^T = b a^T for a weight b; as cuBLAS sees b and a, the first is transposed.
    set(operation, CUBLASLT_MATMUL_DESC_TRANSA, p.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(operation, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  }
};

/// The best algorithm that cuBLASLt knows. Partial sums are never joined in y's type, which would
/// round them: in f32, or not cut at all.
cublasLtMatmulAlgo_t algorithm_for(Device::State& state, const Product& p, const Plan& plan) {
  const std::uint32_t of_a = alignment_of(p.a, p.count, p.a_step),
                      of_b = alignment_of(p.b, p.count, p.b_step),
                      of_y = alignment_of(p.y, p.count, p.y_step);
  const Device::State::ProductKey key{p.y.rows,
                                      p.y.cols,
                                      p.a.cols,
                                      p.a.stride,
                                      p.b.stride,
                                      p.y.stride,
                                      p.count,
                                      p.a_step,
                                      p.b_step,
                                      p.y_step,
                                      of_a,
                                      of_b,
                                      of_y,
                                      p.tf32,
                                      p.transposed,
                                      static_cast<Size>(p.a.type),
                                      static_cast<Size>(p.y.type)};
  if (const auto known = state.algorithms.find(key); known != state.algorithms.end())
    return known->second;
  Preference preference;
  TPSIM_CUDA(cublas_lt().cublasLtMatmulPreferenceCreate(&preference.handle));
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, Device::State::workspace_bytes);
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, of_b);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, of_a);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_y);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, of_y);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  TPSIM_CUDA(cublas_lt().cublasLtMatmulAlgoGetHeuristic(
      state.cublas, plan.operation.handle, plan.b.handle, plan.a.handle, plan.y.handle,
      plan.y.handle, preference.handle, 1, &result, &found));
  if (found == 0)
    fail("cublasLtMatmulAlgoGetHeuristic",
         "no algorithm for " + std::to_string(p.count) + " products [" + std::to_string(p.y.rows) +
             ", " + std::to_string(p.a.cols) + "] x [" + std::to_string(p.a.cols) + ", " +
             std::to_string(p.y.cols) + "]",
         __FILE__, __LINE__);
  TPSIM_CUDA(result.state);
  state.algorithms.emplace(key, result.algo);
  return result.algo;
}

}  // namespace

void Device::product(const Product& p) {
  const cudaStream_t stream = state_->use();
  if (p.y.size() == 0 || p.count == 0) return;
  if (p.a.cols == 0) {
    for (Size i = 0; i < p.count; ++i) {
      Matrix y = p.y;
      y.data = static_cast<unsigned char*>(y.data) + i * p.y_step * bytes_of(y.type);
      fill(y, 0);
    }
    return;
  }
  const Plan plan(p);
  const cublasLtMatmulAlgo_t algorithm = algorithm_for(*state_, p, plan);
  const float one = 1, zero = 0;
  TPSIM_CUDA(cublas_lt().cublasLtMatmul(state_->cublas, plan.operation.handle, &one, p.b.data,
                                        plan.b.handle, p.a.data, plan.a.handle, &zero, p.y.data,
                                        plan.y.handle, p.y.data, plan.y.handle, &algorithm,
                                        state_->workspace, State::workspace_bytes, stream));
}

}  // namespace tpsim::cuda
