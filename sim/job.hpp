// SPDX-License-Identifier: MIT
// The processes that a command line runs in: one, or with --comm mpi and nccl those of a job.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <tpsim/comm/process/process_ranks.hpp>

#include "sim/command_line.hpp"
#include "sim/request.hpp"

namespace tpsim::cli {

/// Was this program built with MPI?
[[nodiscard]] bool has_mpi();

class Job {
 public:
  /// Starts MPI or NCCL where the arguments have that `--comm` and the program can.
  explicit Job(const std::vector<std::string>& arguments);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Null: all ranks live in this process. @throws why the others were not found
  [[nodiscard]] RankWorld* world() const;
  /// Does this process write reports and errors? Of several, one does.
  [[nodiscard]] bool reports() const;
  /// The exit status of the whole job. @param trouble  what this process has failed with, or ""
  [[nodiscard]] int finish(int status, const std::string& trouble) const;
  /// The status that ended the job while this process waited for it, if that is what this is.
  [[nodiscard]] static bool is_end(const std::exception_ptr& error, int& status);

 private:
  std::unique_ptr<ProcessWorld> world_;
  std::exception_ptr failed_;
};

/// Reads --comm into `choice`. @throws UsageError where the program cannot do it
void read_comm(const Given& given, RankWorld* world, RankChoice& choice);

/// --tp for the ranks of `choice`: theirs when it is not given. @throws UsageError for another
void require_tp(int tp, const RankChoice& choice);

/// What a reader might not expect of where the ranks live; "" for nothing.
[[nodiscard]] std::string note_on_ranks(const RankChoice& choice);

}  // namespace tpsim::cli
