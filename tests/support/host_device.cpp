// SPDX-License-Identifier: MIT
// The implementation of cuda::Device that runs on the CPU: see host_device.hpp.
#include <tests/support/host_device.hpp>

#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include <tpsim/backend/cuda/bodies/pointwise.hpp>
#include <tpsim/backend/cuda/cuda_ops.hpp>
#include <tpsim/comm/detail/fiber.hpp>

namespace tpsim::cuda {

struct Device::State {
  std::vector<unsigned char> staging;
};

namespace {

/// Lanes of one row that meet in all.sum() and the like: a fiber each, and everybody's value is
/// there before anybody goes on.
class MeetingLanes {
 public:
  explicit MeetingLanes(Size count) : count_(count) {}

  template <class Body>
  void run(const Body& body, Size row) {
    using tpsim::detail::Fiber, tpsim::detail::FiberPool;
    struct One {
      const Body* body;
      MeetingLanes* all;
      Size row, index;
      std::unique_ptr<Fiber> fiber;
    };
    std::vector<One> lanes;
    lanes.reserve(static_cast<std::size_t>(count_));
    // Last lane first: a body whose lanes depend on each other gives another result than one lane.
    for (Size i = count_; i-- > 0;) {
      One& lane = lanes.emplace_back(One{&body, this, row, i, FiberPool::of_thread().take()});
      lane.fiber->start(
          [](void* argument) {
            One& own = *static_cast<One*>(argument);
            Handle handle{own.all, own.index, own.fiber.get()};
            (*own.body)(own.row, Lane{own.index, own.all->count_}, handle);
          },
          &lane, 0);
    }
    for (bool busy = true; busy;) {
      values_.assign(static_cast<std::size_t>(count_), 0);
      choices_.assign(static_cast<std::size_t>(count_), {});
      busy = false;
      for (One& lane : lanes)
        if (!lane.fiber->finished()) {
          lane.fiber->resume();
          busy = busy || !lane.fiber->finished();
        }
      result_ = values_, result_choices_ = choices_;
    }
    for (One& lane : lanes) FiberPool::of_thread().give(std::move(lane.fiber));
  }

 private:
  struct Handle {
    MeetingLanes* all;
    Size index;
    tpsim::detail::Fiber* fiber;

    [[nodiscard]] double sum(double x) { return joined(x, cuda::Sum{}); }
    [[nodiscard]] double max(double x) { return joined(x, cuda::Max{}); }
    [[nodiscard]] Choice best(const Choice& x) {
      all->choices_[static_cast<std::size_t>(index)] = x;
      fiber->suspend();
      Choice out = all->result_choices_[0];
      for (std::size_t i = 1; i < all->result_choices_.size(); ++i)
        out = Best{}(out, all->result_choices_[i]);
      return out;
    }
    template <class Op>
    double joined(double x, Op op) {
      all->values_[static_cast<std::size_t>(index)] = x;
      fiber->suspend();
      double out = all->result_[0];
      for (std::size_t i = 1; i < all->result_.size(); ++i) out = op(out, all->result_[i]);
      return out;
    }
  };

  Size count_;
  std::vector<double> values_, result_;
  std::vector<Choice> choices_, result_choices_;
};

template <class Body>
void each(Device::State& /*state*/, const Body& body) {
  const Size lanes = HostDevice::instance().lanes;
  for (Size lane = lanes; lane-- > 0;) body(Lane{lane, lanes});
}
template <class Body>
void by_rows(Device::State& /*state*/, const Body& body) {
  const Size lanes = HostDevice::instance().lanes;
  MeetingLanes meeting(lanes);
  OneLane alone;
  for (Size row = 0; row < body.rows(); ++row)
    if (lanes == 1)
      body(row, Lane{}, alone);
    else
      meeting.run(body, row);
}

}  // namespace

HostDevice& HostDevice::instance() {
  static HostDevice host;
  static const bool set = [] {  // the program's own, from outside
    HostDevice& from = host;
    const auto given = [](const char* name, double fallback) {
      const char* value = std::getenv(name);
      return value == nullptr ? fallback : std::atof(value);
    };
    from.lanes = static_cast<Size>(given("TPSIM_HOST_LANES", 1));
    from.devices = static_cast<int>(given("TPSIM_HOST_DEVICES", 1));
    from.off_by = given("TPSIM_HOST_OFF_BY", 0);
    from.always_tf32 = given("TPSIM_HOST_ALWAYS_TF32", 0) != 0;
    return true;
  }();
  static_cast<void>(set);
  return host;
}

bool Device::is_built() { return true; }
int Device::count() { return HostDevice::instance().devices; }
std::string Device::why_none() { return "the test says so"; }
std::string Device::versions() { return "no CUDA at all"; }
Device Device::shared(int ordinal) {
  static const Device device(ordinal);
  return device;
}
Device::Device(int ordinal) : state_(std::make_shared<State>()) {
  if (ordinal >= count()) throw Error("host device " + std::to_string(ordinal) + " is not there");
}
std::string Device::name() const {
  return "host, " + std::to_string(HostDevice::instance().lanes) + " lanes";
}
void Device::wait() {}

// malloc, so that a sanitizer sees an access outside.
void Device::Free::operator()(void* memory) const noexcept {
  --HostDevice::instance().live;
  ::operator delete(memory);
}
thread_local int HostDevice::failing_allocation = -1;

Device::Buffer Device::allocate(Size bytes) {
  if (bytes == 0) return Buffer(nullptr, Free{state_});
  if (HostDevice::failing_allocation >= 0 && HostDevice::failing_allocation-- == 0)
    throw Error("the host device is full");
  ++HostDevice::instance().live;
  return Buffer(::operator new(static_cast<std::size_t>(bytes)), Free{state_});
}
void* Device::staging() {
  state_->staging.resize(static_cast<std::size_t>(staging_bytes));
  return state_->staging.data();
}
void Device::send(Matrix out) {
  copy({state_->staging.data(), out.rows, out.cols, out.cols, out.type}, out);
}
Device::Buffer Device::array(const void* host, Size bytes) {
  Buffer out = allocate(bytes);
  if (bytes > 0) std::memcpy(out.get(), host, static_cast<std::size_t>(bytes));
  return out;
}
void Device::download(ConstMatrix in, void* host) {
  copy(in, {host, in.rows, in.cols, in.cols, in.type});
}
void Device::copy(ConstMatrix in, Matrix out) {
  if (in.type != out.type) return each(*state_, body::Convert{in, out});
  if (out.cols == 0) return;
  const Size step = bytes_of(in.type);
  for (Size row = 0; row < in.rows; ++row)
    std::memcpy(static_cast<unsigned char*>(out.data) + row * out.stride * step,
                static_cast<const unsigned char*>(in.data) + row * in.stride * step,
                static_cast<std::size_t>(in.cols * step));
}

namespace {

/// To the nearest of 11 significant bits, to even: TF32 as a product reads it.
float to_tf32(float x) {
  std::uint32_t bits = bits_of(x);
  if ((bits & 0x7f800000U) == 0x7f800000U) return x;
  bits += 0xfffU + (bits >> 13U & 1U);
  return float_of(bits & ~0x1fffU);
}

}  // namespace

// Products added in the order of the inner columns.
void Device::product(const Product& p) {
  ++HostDevice::instance().products;
  if (p.a.type != p.b.type || (p.y.type != p.a.type && p.y.type != Type::f32))
    throw Error("no such product of types");
  const bool tf32 = p.a.type == Type::f32 && (p.tf32 || HostDevice::instance().always_tf32);
  const auto factor = [tf32](float x) { return tf32 ? to_tf32(x) : x; };
  for (Size i = 0; i < p.count; ++i) {
    const auto moved = [&](auto m, Size step) { return part_of(m, 0, m.rows, i * step, m.cols); };
    const ConstMatrix a = moved(p.a, p.a_step), b = moved(p.b, p.b_step);
    const Matrix y = moved(p.y, p.y_step);
    for (Size r = 0; r < y.rows; ++r)
      for (Size c = 0; c < y.cols; ++c) {
        float sum = 0;
        for (Size k = 0; k < a.cols; ++k)
          sum += factor(load(a, r, k)) * factor(p.transposed ? load(b, c, k) : load(b, k, c));
        if (r == 0 && c == 0) sum += static_cast<float>(HostDevice::instance().off_by);
        store(y, r, c, sum);
      }
  }
}

}  // namespace tpsim::cuda

#include "sim/cuda/launches.hpp"
