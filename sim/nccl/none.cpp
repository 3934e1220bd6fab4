// SPDX-License-Identifier: MIT
// nccl::Group where nccl.h was not found: there is none, and whoever asks for one is told why.
#include <tpsim/backend/nccl/nccl_group.hpp>

namespace tpsim::nccl {

struct Group::State {};

namespace {

[[noreturn]] void refuse() { throw cuda::Error("tpsim was built without NCCL"); }

}  // namespace

bool Group::is_built() { return false; }
std::string Group::version() { refuse(); }
std::vector<std::byte> Group::new_id() { refuse(); }
Group Group::join(cuda::Device /*device*/, const Seat& /*seat*/) { refuse(); }
int Group::rank() const { refuse(); }
int Group::size() const { refuse(); }
void Group::all_gather(const void* /*in*/, void* /*out*/, Size /*bytes*/,
                       const std::string& /*what*/) {
  refuse();
}
void Group::all_reduce(const void* /*in*/, void* /*out*/, Size /*count*/, cuda::Type /*type*/,
                       cuda::ReduceOp /*op*/, const std::string& /*what*/) {
  refuse();
}
void Group::reduce_scatter(const void* /*in*/, void* /*out*/, Size /*count*/, cuda::Type /*type*/,
                           cuda::ReduceOp /*op*/, const std::string& /*what*/) {
  refuse();
}
void Group::broadcast(const void* /*in*/, void* /*out*/, Size /*bytes*/, int /*root*/,
                      const std::string& /*what*/) {
  refuse();
}
void Group::gather(const void* /*in*/, void* /*out*/, Size /*bytes*/, int /*root*/,
                   const std::string& /*what*/) {
  refuse();
}
void Group::all_to_all(const void* /*in*/, void* /*out*/, Size /*bytes*/,
                       const std::string& /*what*/) {
  refuse();
}
void Group::abandon() { refuse(); }
Group Group::split(int /*color*/, int /*key*/) { refuse(); }

}  // namespace tpsim::nccl
