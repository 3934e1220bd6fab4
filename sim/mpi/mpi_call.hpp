// SPDX-License-Identifier: MIT
// MPI's functions with their errors as exceptions, and messages of any length.
#pragma once

#include <mpi.h>
#include <algorithm>
#include <climits>
#include <string>

#include <tpsim/comm/mpi/mpi_ranks.hpp>

namespace tpsim::mpi {

/// @throws MpiError naming the call
inline void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw MpiError(std::string(call) + ": " + std::string(text, static_cast<std::size_t>(length)));
}
#define TPSIM_MPI(call) ::tpsim::mpi::check(call, #call)

/// Counts of MPI are ints: longer messages go in parts.
constexpr std::size_t longest_part = std::size_t{1} << 30U;

inline void send(MPI_Comm comm, int to, int tag, std::span<const std::byte> bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += longest_part) {
    const std::size_t n = std::min(longest_part, bytes.size() - at);
    TPSIM_MPI(MPI_Send(bytes.data() + at, static_cast<int>(n), MPI_BYTE, to, tag, comm));
  }
}
inline void receive(MPI_Comm comm, int from, int tag, std::span<std::byte> bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += longest_part) {
    const std::size_t n = std::min(longest_part, bytes.size() - at);
    TPSIM_MPI(MPI_Recv(bytes.data() + at, static_cast<int>(n), MPI_BYTE, from, tag, comm,
                       MPI_STATUS_IGNORE));
  }
}

/// A message with its length before it. A negative length says that the sender has failed.
inline void send_sized(MPI_Comm comm, int to, int tag, std::span<const std::byte> bytes) {
  auto size = static_cast<long long>(bytes.size());
  TPSIM_MPI(MPI_Send(&size, 1, MPI_LONG_LONG, to, tag, comm));
  send(comm, to, tag, bytes);
}
inline void send_failure(MPI_Comm comm, int to, int tag) {
  const long long size = -1;
  MPI_Send(&size, 1, MPI_LONG_LONG, to, tag, comm);
}
/// False where the sender has failed.
[[nodiscard]] inline bool receive_sized(MPI_Comm comm, int from, int tag, Bytes& bytes) {
  long long size = 0;
  TPSIM_MPI(MPI_Recv(&size, 1, MPI_LONG_LONG, from, tag, comm, MPI_STATUS_IGNORE));
  if (size < 0) return false;
  bytes.resize(static_cast<std::size_t>(size));
  receive(comm, from, tag, bytes);
  return true;
}

}  // namespace tpsim::mpi
