// SPDX-License-Identifier: MIT
// Uses the installed headers and the libraries behind them.
#include <fmt/format.h>

#include <Eigen/Core>
#include <boost/context/fiber.hpp>
#include <utility>

#include <tpsim/core/divide.hpp>
#include <tpsim/version.hpp>
#ifdef CONSUMER_HAS_MPI
#include <tpsim/comm/mpi/mpi_ranks.hpp>
#endif

int main([[maybe_unused]] int argc, char** /*argv*/) {
  int visits = 0;
  boost::context::fiber fiber([&](boost::context::fiber&& caller) {
    ++visits;
    return std::move(caller);
  });
  fiber = std::move(fiber).resume();
  fmt::print("tpsim {}: 32 heads over 4 ranks are {} each\n", TPSIM_VERSION,
             tpsim::divide(32, 4, "heads"));
#ifdef CONSUMER_HAS_MPI
  if (argc > 1) return tpsim::MpiRanks().size();  // links; nothing starts MPI here
#endif
  return visits == 1 ? 0 : 1;
}
