// SPDX-License-Identifier: MIT
// How a collective that all ranks of a group agree on moves its tensors by NCCL.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tpsim/backend/collectives.hpp>
#include <tpsim/backend/cuda/cuda_backend.hpp>
#include <tpsim/backend/nccl/nccl_group.hpp>

#include "sim/process/wire.hpp"

namespace tpsim::nccl {

class TensorGroup final : public process::Group {
 public:
  /// @param other_failed  asked where a collective has failed: was it another rank that did?
  TensorGroup(cuda::Device device, nccl::Group group, bool native,
              std::function<bool()> other_failed);
  [[nodiscard]] bool move(const detail::Arrival& mine, std::uint64_t job) override;
  [[nodiscard]] std::unique_ptr<process::Group> split(int color, int key) override;
  void leave() override { group_.reset(); }
  void give_up() override;

 private:
  using Call = detail::Call;
  using Ops = BackendOps<CudaBackend>;
  /// What a rank tells the others of its tensor.
  struct Head {
    Index bytes = 0;  ///< that it sends; failed: it cannot
    Index rows = 0, cols = 0, type = 0;
  };
  static constexpr Index failed = -1;
  using Tensors = std::vector<TensorOps::Owned>;

  [[nodiscard]] bool moved_by(const Call& call);
  [[nodiscard]] std::string text_of(const Call& call) const;
  [[nodiscard]] std::vector<Head> told(const Head& mine, const std::string& what);

  // In rank order: everybody's tensor on every rank that needs it, and then each for itself.
  /// The ranks' bytes on the device, of `each` bytes, one after the other; null where not wanted
  [[nodiscard]] cuda::Device::Buffer gathered(const Call& call, const void* mine, Index bytes,
                                              Index each);
  [[nodiscard]] bool on_device(const Call& call);
  [[nodiscard]] bool packed(const Call& call, const TensorOps& ops);
  /// Has this rank a result?
  [[nodiscard]] bool receives(const Call& call) const;
  void finish(const Call& call, const Tensors& tensors) const;

  // By NCCL's own collectives. False: not this one, all ranks agree on that.
  [[nodiscard]] bool natively(const Call& call, const Ops& ops);
  void natively_reduce(const Call& call, const Ops& ops);
  void natively_move(const Call& call, const Ops& ops);
  [[nodiscard]] DeviceTensor moved(const Ops& ops, const DeviceTensor& x, int from, int to);

  cuda::Device device_;
  std::optional<nccl::Group> group_;
  bool native_;
  std::function<bool()> other_failed_;
};

}  // namespace tpsim::nccl
