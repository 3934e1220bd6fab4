// SPDX-License-Identifier: MIT
// One program on virtual ranks and on the processes of this job: what it did must be the same.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <tests/support/catch.hpp>
#include <tpsim/comm/mpi/mpi_ranks.hpp>
#include <tpsim/comm/virtual_ranks.hpp>

namespace tpsim::test {

using Program = std::function<void(Communicator&)>;

inline std::string text_of(const CollectiveRecord& r) {
  return std::string(name(r.op)) + " " + std::string(name(r.reduction)) + " " + r.group + "/" +
         std::to_string(r.group_size) + " " + r.shape.str() + " " + std::string(name(r.dtype)) +
         " " + std::to_string(r.bytes) + " " + std::to_string(r.array_bytes) + " #" +
         std::to_string(r.sequence) + " " + where(r.at);
}
inline std::vector<std::string> text_of(const Trace& trace) {
  std::vector<std::string> out;
  for (const CollectiveRecord& r : trace) out.push_back(text_of(r));
  return out;
}

/// What a run ended in, in words.
template <class World>
std::string end_of(World& world, const Program& program) {
  try {
    world.run(program);
    return "returned";
  } catch (const CollectiveMismatch& e) {
    return std::string("mismatch: ") + e.what();
  } catch (const LayoutError& e) {
    return "layout: " + std::string(e.what()) + " on rank " + std::to_string(world.failed_rank());
  } catch (const RemoteError& e) {
    return std::string(e.what()) + " on rank " + std::to_string(world.failed_rank());
  } catch (const std::exception& e) {
    return "rank " + std::to_string(world.failed_rank()) + ": " + e.what() + " on rank " +
           std::to_string(world.failed_rank());
  }
}

/// Runs it twice on a world of processes, which must end as one of virtual ranks does, with the
/// same trace, and be of use afterwards. @return the end
inline std::string same_end(const Program& program, MpiOptions options = {}) {
  MpiRanks processes(options);
  VirtualRanks ranks(processes.size());
  const std::string wanted = end_of(ranks, program);
  for (int again = 0; again < 2; ++again) {
    CHECK(end_of(processes, program) == wanted);
    CHECK(processes.failed_rank() == ranks.failed_rank());
    CHECK(text_of(processes.trace()) == text_of(ranks.trace()));
  }
  int ran = 0;
  processes.run([&](Communicator& comm) { comm.barrier(), ++ran; });
  CHECK(ran == 1);
  return wanted;
}

inline int job_size() {
  static const int size = MpiRanks().size();
  return size;
}

}  // namespace tpsim::test
