// SPDX-License-Identifier: MIT
// The tpsim command: reads the command line, runs one command, turns errors into exit statuses.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "sim/commands.hpp"
#include "sim/report.hpp"
#include "sim/request.hpp"

namespace {

// 0 verified, 1 a check found a fault, 2 cannot ask, 3 bug in tpsim
int run(const std::vector<std::string>& arguments) {
  using namespace tpsim::cli;
  const bool json = wants_json(arguments);
  try {
    const int status = run_request(parse_command_line(arguments));
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
    print_error(false, "cannot write the report to stdout", {}, "is the disk full?");
  } catch (const UsageError& e) {
    print_error(json, e.what(), {}, e.hint());
  } catch (const tpsim::LayoutError& e) {
    print_error(json, e.subject(), e.violations(), e.hint());
  } catch (const std::bad_alloc&) {
    print_error(json, "not enough memory for these sizes", {},
                "use smaller sizes, or --reading static");
  } catch (const std::exception& e) {
    print_error(json, std::string("bug in tpsim: ") + e.what(), {},
                "please report it, with the command line");
    return 3;
  }
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (...) {
    std::fputs("error: bug in tpsim: an unknown exception\n", stderr);
  }
  return 3;
}
