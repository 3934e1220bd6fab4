// SPDX-License-Identifier: MIT
// How processes find each other without a launcher that knows them: through a file.
#pragma once

#include <stdexcept>
#include <string>

namespace tpsim {

/// Where processes meet. Rank 0 writes a file that others read: where it listens, and a secret that
/// they show. It is removed when all are there.
struct Meeting {
  std::string file;  ///< of a folder that all processes see; no such file may be there before
  int rank = 0, size = 1;
  /// Of the meeting, and of a rank in the middle of a run that waits for another one.
  double time_limit_s = 300;
};

/// The processes have not found each other.
class MeetingError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tpsim
