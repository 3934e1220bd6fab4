// SPDX-License-Identifier: MIT
#include "sim/cuda/timer.hpp"

#include "sim/cuda/device_state.hpp"

namespace tpsim::cuda {

struct Timer::Events {
  cudaEvent_t begin = nullptr, end = nullptr;
  Events() {
    TPSIM_CUDA(cudaEventCreate(&begin));
    TPSIM_CUDA(cudaEventCreate(&end));
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  ~Events() {
    if (begin != nullptr) (void)cudaEventDestroy(begin);
    if (end != nullptr) (void)cudaEventDestroy(end);
  }
};

Timer::Timer(Device device) : device_(std::move(device)) {
  device_.state().use();
  events_ = std::make_shared<Events>();
}
void Timer::start() { TPSIM_CUDA(cudaEventRecord(events_->begin, device_.state().use())); }
double Timer::stop() {
  TPSIM_CUDA(cudaEventRecord(events_->end, device_.state().use()));
  TPSIM_CUDA(cudaEventSynchronize(events_->end));
  float milliseconds = 0;
  TPSIM_CUDA(cudaEventElapsedTime(&milliseconds, events_->begin, events_->end));
  return static_cast<double>(milliseconds);
}

}  // namespace tpsim::cuda
