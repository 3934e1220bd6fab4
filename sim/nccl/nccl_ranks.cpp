// SPDX-License-Identifier: MIT
#include <tpsim/backend/nccl/nccl_ranks.hpp>

#include "sim/nccl/nccl_tensors.hpp"
#include "sim/process/process_world.hpp"
#include "sim/process/socket_wire.hpp"

namespace tpsim {
namespace nccl {
namespace {

class NcclWire final : public process::SocketWire {
 public:
  NcclWire(cuda::Device device, const Meeting& meeting, bool native)
      : SocketWire(meeting), device_(std::move(device)), native_(native) {}

  [[nodiscard]] std::unique_ptr<process::Group> all() override {
    Seat seat{id(), rank(), size(), time_limit_s(), [this] { watch(); }};
    return std::make_unique<TensorGroup>(device_, nccl::Group::join(device_, seat), native_,
                                         [this] { return has_other_failed(); });
  }

 private:
  /// Rank 0's, on every rank.
  [[nodiscard]] Bytes id() {
    if (rank() != 0)
      return wait_for(0, process::Channel::data, [this](const process::Pause& pause) {
        if (pause.is_longer_than(time_limit_s()))
          throw MeetingError("rank 0 has not told NCCL's id");
      });
    Bytes own = nccl::Group::new_id();
    for (int r = 1; r < size(); ++r) send(r, process::Channel::data, own);
    return own;
  }

  cuda::Device device_;
  bool native_;
};

}  // namespace
}  // namespace nccl

NcclRanks::NcclRanks(cuda::Device device, const Meeting& meeting, NcclOptions options)
    : ProcessRanks(std::make_unique<process::World>(
          std::make_unique<nccl::NcclWire>(std::move(device), meeting, options.native),
          options.debug)) {}

}  // namespace tpsim
