// SPDX-License-Identifier: MIT
#include "sim/job.hpp"

#include <algorithm>

#include <fmt/format.h>

#ifdef TPSIM_HAS_MPI
#include <tpsim/comm/mpi/mpi_ranks.hpp>
#endif

namespace tpsim::cli {

#ifdef TPSIM_HAS_MPI

bool has_mpi() { return true; }
struct Job::Mpi {
  MpiWorld world;
};
RankWorld* Job::world() const { return mpi_ ? &mpi_->world : nullptr; }
int Job::finish(int status, const std::string& trouble) const {
  return mpi_ ? mpi_->world.finish(status, trouble) : status;
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

#else

bool has_mpi() { return false; }
struct Job::Mpi {};
RankWorld* Job::world() const { return nullptr; }
int Job::finish(int status, const std::string& /*trouble*/) const { return status; }
bool Job::is_end(const std::exception_ptr& /*error*/, int& /*status*/) { return false; }

#endif

Job::Job(const std::vector<std::string>& arguments) {
  bool wanted = false;
  for (std::size_t i = 0; i < arguments.size(); ++i)
    wanted = wanted || arguments[i] == "--comm=mpi" ||
             (arguments[i] == "--comm" && i + 1 < arguments.size() && arguments[i + 1] == "mpi");
  if (wanted && has_mpi()) mpi_ = std::make_unique<Mpi>();
}
Job::~Job() = default;
bool Job::reports() const { return world() == nullptr || world()->is_root(); }

void read_comm(const Given& given, RankWorld* world, RankChoice& choice) {
  const auto it = given.find("comm");
  if (it == given.end()) return;
  require_choice("communicator", it->second, {"virtual", "mpi", "nccl"},
                 "communicators are virtual, mpi and nccl");
  if (it->second == "nccl")
    throw UsageError(
        "no command of tpsim runs over NCCL yet",
        "use --comm virtual, with --backend cuda on one GPU, or --comm mpi under mpirun");
  if (it->second == "mpi" && world == nullptr)
    throw UsageError(has_mpi() ? "--comm mpi needs MPI, which was not started"
                               : "this tpsim was built without MPI",
                     "use --comm virtual; or install libopenmpi-dev and openmpi-bin, then cmake -B "
                     "build and cmake --build build");
  if (const auto backend = given.find("backend");
      it->second == "mpi" && backend != given.end() && backend->second == "cuda")
    throw UsageError("--backend cuda has all ranks in one process, --comm mpi one in each",
                     "use --comm virtual, or --backend eigen");
  choice.comm = it->second;
  choice.world = choice.comm == "mpi" ? world : nullptr;
}

void require_tp(int tp, const RankChoice& choice) {
  if (choice.world == nullptr || choice.world->size() == tp) return;
  const int have = choice.world->size();
  throw UsageError(
      fmt::format("--tp {} with --comm mpi needs {} processes, and this job has {}", tp, tp, have),
      fmt::format("start it with mpirun -np {}, or leave --tp out: it is the number of processes",
                  tp));
}

std::string note_on_ranks(const RankChoice& choice) {
  if (choice.world == nullptr || choice.world->size() > 1) return {};
  return "one process, so tp 1; mpirun -np 4 tpsim --comm mpi ... starts four";
}

}  // namespace tpsim::cli
