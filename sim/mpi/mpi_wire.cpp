// SPDX-License-Identifier: MIT
// Starting and ending MPI, and messages with rank 0.
#include <cstdio>
#include <cstdlib>

#include "sim/mpi/mpi_group.hpp"
#include "sim/process/process_world.hpp"

namespace tpsim::mpi {
namespace {

using process::Channel;

int living_worlds = 0;

/// Run when the program exits. Whoever leaves while others count on him ends the job.
void at_exit() {
  int finalized = 0;
  if (MPI_Finalized(&finalized) != MPI_SUCCESS || finalized != 0) return;
  if (living_worlds > 0) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::fprintf(stderr, "error: rank %d ended its process while the others wait for it\n", rank);
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
  MPI_Finalize();
}

void start_mpi() {
  int started = 0;
  TPSIM_MPI(MPI_Initialized(&started));
  if (started != 0) return;
  int provided = 0;
  TPSIM_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided));
  std::atexit(at_exit);
}

int tag_of(Channel c) { return 1 + static_cast<int>(c); }

class MpiWire final : public process::Wire {
 public:
  explicit MpiWire(bool fast) : fast_(fast) {
    start_mpi();
    TPSIM_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm_));
    TPSIM_MPI(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    TPSIM_MPI(MPI_Comm_rank(comm_, &rank_));
    TPSIM_MPI(MPI_Comm_size(comm_, &size_));
    ++living_worlds;
  }
  ~MpiWire() override { --living_worlds; }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  void send(int to, Channel channel, std::span<const std::byte> bytes) override {
    // Others are short: one message each.
    if (channel == Channel::data)
      send_sized(comm_, to, tag_of(channel), bytes);
    else
      mpi::send(comm_, to, tag_of(channel), bytes);
  }
  [[nodiscard]] std::optional<Found> receive(int from, Channel channel) override {
    MPI_Status status;
    int found = 0;
    TPSIM_MPI(
        MPI_Iprobe(from < 0 ? MPI_ANY_SOURCE : from, tag_of(channel), comm_, &found, &status));
    if (found == 0) return std::nullopt;
    Found out{status.MPI_SOURCE, {}};
    if (channel == Channel::data) {
      (void)receive_sized(comm_, out.from, tag_of(channel), out.bytes);
      return out;
    }
    int size = 0;
    TPSIM_MPI(MPI_Get_count(&status, MPI_BYTE, &size));
    out.bytes.resize(static_cast<std::size_t>(size));
    TPSIM_MPI(MPI_Recv(out.bytes.data(), size, MPI_BYTE, out.from, status.MPI_TAG, comm_,
                       MPI_STATUS_IGNORE));
    return out;
  }
  [[nodiscard]] std::unique_ptr<process::Group> all() override {
    MPI_Comm tensors = MPI_COMM_NULL;
    TPSIM_MPI(MPI_Comm_dup(comm_, &tensors));
    return std::make_unique<MpiGroup>(tensors, fast_);
  }
  [[noreturn]] void abort() override {
    MPI_Abort(MPI_COMM_WORLD, 3);
    std::abort();
  }
  void close() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized == 0) MPI_Comm_free(&comm_);
  }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  bool fast_;
};

}  // namespace
}  // namespace tpsim::mpi

namespace tpsim {

MpiRanks::MpiRanks(MpiOptions options)
    : ProcessRanks(std::make_unique<process::World>(std::make_unique<mpi::MpiWire>(options.fast),
                                                    options.debug)) {}

}  // namespace tpsim
