// SPDX-License-Identifier: MIT
#include "sim/job.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <tpsim/backend/nccl/nccl_group.hpp>
#include <tpsim/backend/nccl/nccl_ranks.hpp>
#ifdef TPSIM_HAS_MPI
#include <tpsim/comm/mpi/mpi_ranks.hpp>
#endif

#include "sim/launched.hpp"

namespace tpsim::cli {
namespace {

#ifdef TPSIM_HAS_MPI
std::unique_ptr<ProcessWorld> start_mpi() { return std::make_unique<MpiWorld>(); }
#else
std::unique_ptr<ProcessWorld> start_mpi() { return nullptr; }
#endif

bool can_start_nccl() { return nccl::Group::is_built() && cuda::Device::count() > 0; }

std::unique_ptr<ProcessWorld> start_nccl() {
  const Launched launched = read_launched();
  try {
    return std::make_unique<NcclWorld>(
        cuda::Device::shared(launched.local_rank % cuda::Device::count()), launched.meeting);
  } catch (const MeetingError& e) {
    throw UsageError(e.what(),
                     "each run needs a new TPSIM_NCCL_FILE that all its processes see, ranks 0 to "
                     "TPSIM_WORLD_SIZE - 1, and TPSIM_NCCL_TIME_LIMIT seconds to meet");
  } catch (const cuda::Error& e) {
    throw UsageError(
        std::string("NCCL could not start: ") + e.what(),
        "the errors of the other ranks may say more; ranks on one GPU need NCCL_HOSTIDs "
        "of their own, which tpsim-nccl-run sets");
  }
}

/// The value of `--NAME`, before anything is parsed.
std::string given_as(const std::string& name, const std::vector<std::string>& arguments) {
  const std::string option = "--" + name;
  std::string out;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].rfind(option + "=", 0) == 0) out = arguments[i].substr(option.size() + 1);
    if (arguments[i] == option && i + 1 < arguments.size()) out = arguments[i + 1];
  }
  return out;
}

void require_world(const std::string& comm) {
  if (comm == "mpi")
    throw UsageError(has_mpi() ? "--comm mpi needs MPI, which was not started"
                               : "this tpsim was built without MPI",
                     "use --comm virtual; or install libopenmpi-dev and openmpi-bin, then cmake -B "
                     "build and cmake --build build");
  if (!nccl::Group::is_built())
    throw UsageError("this tpsim was built without NCCL",
                     "use --comm virtual, or mpi; NCCL needs nvcc in the PATH and nccl.h, then "
                     "configure anew (cmake --fresh) and build again");
  throw UsageError(fmt::format("no CUDA device: {}", cuda::Device::why_none()),
                   "use --comm virtual, or mpi, or machines with NVIDIA GPUs and their driver");
}

std::string launch(const std::string& comm, int tp) {
  return fmt::format("{} {}", comm == "mpi" ? "mpirun -np" : "tpsim-nccl-run -n", tp);
}

}  // namespace

bool has_mpi() {
#ifdef TPSIM_HAS_MPI
  return true;
#else
  return false;
#endif
}

Job::Job(const std::vector<std::string>& arguments) {
  const std::string comm = given_as("comm", arguments);
  try {
    if (comm == "mpi") {
      world_ = start_mpi();
      // Each process of a machine has a GPU of its own, as long as there are some.
      const bool on_gpu = given_as("backend", arguments) == "cuda" && cuda::Device::count() > 0;
      if (on_gpu) (void)cuda::Device::shared(launched_local_rank() % cuda::Device::count());
    }
    if (comm == "nccl" && can_start_nccl()) world_ = start_nccl();
  } catch (const std::exception&) {
    failed_ = std::current_exception();
  }
}
Job::~Job() = default;

RankWorld* Job::world() const {
  if (failed_) std::rethrow_exception(failed_);
  return world_.get();
}
bool Job::reports() const { return world_ == nullptr || world_->is_root(); }
int Job::finish(int status, const std::string& trouble) const {
  return world_ ? world_->finish(status, trouble) : status;
}
bool Job::is_end(const std::exception_ptr& error, int& status) {
  try {
    std::rethrow_exception(error);
  } catch (const ProcessStopped& e) {
    status = e.status;
    return true;
  } catch (...) {
    return false;
  }
}

void read_comm(const Given& given, RankWorld* world, RankChoice& choice) {
  const auto it = given.find("comm");
  if (it == given.end()) return;
  require_choice("communicator", it->second, {"virtual", "mpi", "nccl"},
                 "communicators are virtual, mpi and nccl");
  if (it->second == "virtual") return;
  if (world == nullptr) require_world(it->second);
  choice.comm = it->second;
  choice.world = world;
}

void require_tp(int tp, const RankChoice& choice) {
  if (choice.world == nullptr || choice.world->size() == tp) return;
  throw UsageError(fmt::format("--tp {} with --comm {} needs {} processes, and this job has {}", tp,
                               choice.comm, tp, choice.world->size()),
                   fmt::format("start it with {}, or leave --tp out: it is the number of processes",
                               launch(choice.comm, tp)));
}

std::string note_on_ranks(const RankChoice& choice) {
  if (choice.world == nullptr || choice.world->size() > 1) return {};
  return fmt::format("one process, so tp 1; {} tpsim --comm {} ... starts four",
                     launch(choice.comm, 4), choice.comm);
}

}  // namespace tpsim::cli
