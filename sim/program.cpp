// SPDX-License-Identifier: MIT
// What the tpsim command does: reads the command line, runs one command, turns errors into exit
// statuses.
#include "sim/program.hpp"

#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <typeinfo>
#include <vector>

#include <tpsim/backend/nccl/nccl_group.hpp>

#include "sim/commands.hpp"
#include "sim/job.hpp"
#include "sim/report.hpp"
#include "sim/request.hpp"
#include "sim/reuse_memory.hpp"

namespace tpsim::cli {
namespace {

int run(const std::vector<std::string>& arguments, const Job& job, std::string& trouble) {
  const bool json = wants_json(arguments);
  const auto report = [&](bool as_json, const std::string& message,
                          const std::vector<Violation>& violations, const std::string& hint) {
    if (job.reports())
      print_error(as_json, message, violations, hint);
    else
      trouble = message;
  };
  try {
    const int status = run_request(parse_command_line(arguments, job.world()));
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
    report(false, "cannot write the report to stdout", {}, "is the disk full?");
  } catch (const UsageError& e) {
    report(json, e.what(), {}, e.hint());
  } catch (const LayoutError& e) {
    report(json, e.subject(), e.violations(), e.hint());
  } catch (const std::bad_alloc&) {
    report(json, "not enough memory for these sizes", {}, "use smaller sizes, or --reading static");
  } catch (const cuda::Error& e) {
    report(json, std::string("the CUDA device failed: ") + e.what(), {}, "");
  } catch (const std::exception& e) {
    const auto* remote = dynamic_cast<const RemoteError*>(&e);
    // That process could not be asked, or its device.
    if (remote != nullptr &&
        (remote->type().empty() || remote->type() == typeid(cuda::Error).name() ||
         remote->type() == typeid(nccl::Error).name() ||
         remote->type() == typeid(std::bad_alloc).name() ||
         remote->type() == typeid(UsageError).name())) {
      report(json, e.what(), {}, "");
      return 2;
    }
    report(json, std::string("bug in tpsim: ") + e.what(), {},
           "please report it, with the command line");
    return 3;
  } catch (...) {
    int status = 3;
    if (!Job::is_end(std::current_exception(), status))
      report(json, "bug in tpsim: an unknown exception", {}, "");
    return status;
  }
  return 2;
}

}  // namespace

int run_program(int argc, char** argv) {
  try {
    reuse_memory();
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    const Job job(arguments);
    std::string trouble;
    const int status = run(arguments, job, trouble);
    return job.finish(status, trouble);
  } catch (...) {
    std::fputs("error: bug in tpsim: an unknown exception\n", stderr);
  }
  return 3;
}

}  // namespace tpsim::cli
