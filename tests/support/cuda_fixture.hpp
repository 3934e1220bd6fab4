// SPDX-License-Identifier: MIT
// What the tests of the CUDA backend on the host share: the same operands on CPU and device.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <tpsim/backend/cuda/bounded_backend.hpp>
#include <tpsim/backend/cuda/element.hpp>

#include <tests/support/catch.hpp>
#include <tests/support/eigen_fixture.hpp>
#include <tests/support/host_device.hpp>

namespace tpsim::test_cuda {

/// The device as it is by default again when the scope ends.
struct WithLanes {
  explicit WithLanes(cuda::Size lanes) { cuda::HostDevice::instance().lanes = lanes; }
  WithLanes(const WithLanes&) = delete;
  WithLanes& operator=(const WithLanes&) = delete;
  ~WithLanes() {
    cuda::HostDevice& host = cuda::HostDevice::instance();
    host.lanes = 1, host.devices = 1, host.off_by = 0, host.always_tf32 = false;
  }
};

inline constexpr DType rules[] = {DType::f32, DType::bf16, DType::f16};
/// One lane, a warp, and more lanes than most rows have columns.
inline constexpr cuda::Size lane_counts[] = {1, 32, 96};

inline EigenOptions tracked() {
  EigenOptions o;
  o.track_bounds = true;
  return o;
}

/// f(host, device) with backends of one rule and rank 1, for each rule and number of lanes.
template <class F>
void on_each(const F& f, EigenOptions options = tracked()) {
  for (const cuda::Size lanes : lane_counts)
    for (const DType rule : rules) {
      const WithLanes with(lanes);
      INFO(name(rule) << ", " << lanes << " lanes");
      EigenBackend<float> host(1, rule, options);
      BoundedCudaBackend device(1, rule, options, cuda::Device());
      f(host, device);
    }
}

/// The whole tensor as a parameter.
inline BoundedCudaParam loaded(BoundedCudaBackend& b, const FullTensor& t) {
  BoundedCudaParam p = b.empty(t.name(), t.shape());
  b.copy(p, 0, 0, t, 0, t.shape().rows());
  return p;
}

/// Bit for bit, but for the sign of a NaN: that is the compiler's choice.
inline bool same_numbers(const eigen::Matrix<float>& a, const eigen::Matrix<float>& b) {
  for (Index i = 0; i < a.size(); ++i) {
    const float x = a.data()[i], y = b.data()[i];
    if (std::bit_cast<std::uint32_t>(x) != std::bit_cast<std::uint32_t>(y) &&
        !(std::isnan(x) && std::isnan(y)))
      return false;
  }
  return true;
}

/// Are the device's numbers the host's?
inline void same(const BoundedCudaTensor& device, const eigen::Tensor<float>& host) {
  REQUIRE(device.value.rows() == host.value.rows());
  REQUIRE(device.value.cols() == host.value.cols());
  if (host.wide) CHECK(device.device->type() == cuda::Type::f32);  // no more is asked of f32
  CHECK(same_numbers(device.value, host.value));
}
/// Do they lie within their bound of what f64 gives for the same operands?
inline void close(const BoundedCudaTensor& device, const eigen::Tensor<double>& exact) {
  REQUIRE(device.value.rows() == exact.value.rows());
  REQUIRE(device.value.cols() == exact.value.cols());
  double worst = 0;
  for (Index t = 0; t < exact.value.rows(); ++t)
    for (Index c = 0; c < exact.value.cols(); ++c) {
      const double bound = device.bound_at(t, c) + exact.bound_at(t, c);
      const double off = std::abs(static_cast<double>(device.value(t, c)) - exact.value(t, c));
      worst = std::max(worst, off == 0 ? 0 : off / bound);
    }
  CHECK(worst <= 1);
}

inline const std::vector<Shape> shapes{{1, 1}, {1, 7}, {3, 5}, {33, 17}, {5, 600}, {0, 4}, {3, 0}};

}  // namespace tpsim::test_cuda
