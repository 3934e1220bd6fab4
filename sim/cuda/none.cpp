// SPDX-License-Identifier: MIT
// cuda::Device where nvcc was not found: there is none, and whoever asks for one is told why.
#include <tpsim/backend/cuda/bodies/pointwise.hpp>
#include <tpsim/backend/cuda/cuda_ops.hpp>

namespace tpsim::cuda {

struct Device::State {};

namespace {

[[noreturn]] void refuse() { throw Error("tpsim was built without CUDA"); }
template <class Body>
void each(Device::State& /*state*/, const Body& /*body*/) {
  refuse();
}
template <class Body>
void by_rows(Device::State& /*state*/, const Body& /*body*/) {
  refuse();
}

}  // namespace

bool Device::is_built() { return false; }
int Device::count() { return 0; }
std::string Device::why_none() { return "tpsim was built without CUDA"; }
std::string Device::versions() { return "no CUDA"; }
Device Device::shared(int ordinal) { return Device(ordinal); }
Device::Device(int /*ordinal*/) { refuse(); }
std::string Device::name() const { refuse(); }
void Device::wait() { refuse(); }
void Device::Free::operator()(void* /*memory*/) const noexcept {}
Device::Buffer Device::allocate(Size /*bytes*/) { refuse(); }
void* Device::staging() { refuse(); }
void Device::send(Matrix /*out*/) { refuse(); }
Device::Buffer Device::array(const void* /*host*/, Size /*bytes*/) { refuse(); }
void Device::download(ConstMatrix /*in*/, void* /*host*/) { refuse(); }
void Device::copy(ConstMatrix /*in*/, Matrix /*out*/) { refuse(); }
void Device::product(const Product& /*p*/) { refuse(); }

}  // namespace tpsim::cuda

#include "sim/cuda/launches.hpp"
