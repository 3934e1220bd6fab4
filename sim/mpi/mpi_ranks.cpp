// SPDX-License-Identifier: MIT
// MpiRanks as its users see it, and exceptions on their way to other processes.
#include <typeinfo>

#include "sim/mpi/mpi_world.hpp"

namespace tpsim {

MpiRanks::MpiRanks(MpiOptions options) : impl_(std::make_unique<Impl>(options)) {}
MpiRanks::~MpiRanks() = default;
void MpiRanks::run_function(Function function, void* argument) { impl_->run(function, argument); }
Met MpiRanks::meet(Communicator& comm, const Met& mine) {
  return dynamic_cast<mpi::MpiCommunicator&>(comm).meet(mine);
}
int MpiRanks::rank() const { return impl_->rank; }
int MpiRanks::size() const { return impl_->size; }
const Trace& MpiRanks::trace() const { return impl_->trace; }
int MpiRanks::failed_rank() const { return impl_->failed_rank; }
std::vector<Bytes> MpiRanks::bring(std::span<const std::byte> mine) { return impl_->bring(mine); }
Bytes MpiRanks::share(Bytes of_rank_0) { return impl_->share(std::move(of_rank_0)); }
int MpiRanks::finish(int status, const std::string& trouble) {
  return impl_->finish(status, trouble);
}

namespace mpi {

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

}  // namespace mpi
}  // namespace tpsim
