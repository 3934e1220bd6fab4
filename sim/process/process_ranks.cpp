// SPDX-License-Identifier: MIT
// ProcessRanks as its users see it, and exceptions on their way to other processes.
#include <tpsim/comm/process/process_ranks.hpp>

#include <typeinfo>

#include "sim/process/process_world.hpp"

namespace tpsim {

ProcessRanks::ProcessRanks(std::unique_ptr<process::World> world) : world_(std::move(world)) {}
ProcessRanks::~ProcessRanks() = default;
void ProcessRanks::run_function(Function function, void* argument) {
  world_->run(function, argument);
}
Met ProcessRanks::meet(Communicator& comm, const Met& mine) {
  return dynamic_cast<process::ProcessCommunicator&>(comm).meet(mine);
}
int ProcessRanks::rank() const { return world_->rank; }
int ProcessRanks::size() const { return world_->size; }
const Trace& ProcessRanks::trace() const { return world_->trace; }
int ProcessRanks::failed_rank() const { return world_->failed_rank; }
std::vector<Bytes> ProcessRanks::bring(std::span<const std::byte> mine) {
  return world_->bring(mine);
}
Bytes ProcessRanks::share(Bytes of_rank_0) { return world_->share(std::move(of_rank_0)); }
int ProcessRanks::finish(int status, const std::string& trouble) {
  return world_->finish(status, trouble);
}

namespace process {

Bytes pack_exception(const std::exception_ptr& error) {
  ByteWriter w;
  try {
    std::rethrow_exception(error);
  } catch (const LayoutError& e) {
    w.put('L');
    w.put_text(e.subject());
    w.put_text(e.hint());
    w.put(static_cast<std::uint64_t>(e.violations().size()));
    for (const Violation& v : e.violations()) w.put_text(v.rule), w.put_text(v.message);
  } catch (const std::exception& e) {
    w.put('E');
    w.put_text(typeid(e).name());
    w.put_text(e.what());
  } catch (...) {
    w.put('E');
    w.put_text("");
    w.put_text("something that is no std::exception was thrown");
  }
  return std::move(w.bytes);
}

void throw_packed(int rank, const Bytes& packed) {
  ByteReader r(packed);
  if (r.get<char>() == 'L') {
    std::string subject = r.get_text(), hint = r.get_text();
    std::vector<Violation> violations;
    for (auto n = r.get<std::uint64_t>(); n > 0; --n) {
      std::string rule = r.get_text();
      violations.push_back({std::move(rule), r.get_text()});
    }
    throw LayoutError(std::move(subject), std::move(violations), std::move(hint));
  }
  std::string type = r.get_text();
  throw RemoteError(rank, std::move(type), r.get_text());
}

}  // namespace process
}  // namespace tpsim
