// SPDX-License-Identifier: MIT
// Which rank a process is, from the variables of whoever started it.
#include <cstdlib>

#include <sim/launched.hpp>
#include <sim/request.hpp>

#include <tests/support/catch.hpp>

namespace tpsim::test::launched_tests {
namespace {

using Variables = std::vector<std::pair<const char*, const char*>>;

/// f() with these variables and no other of a launcher.
template <class F>
auto with(const Variables& variables, const F& f) {
  const std::vector<const char*> all{"TPSIM_RANK",           "TPSIM_WORLD_SIZE",
                                     "TPSIM_LOCAL_RANK",     "OMPI_COMM_WORLD_RANK",
                                     "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                                     "SLURM_PROCID",         "SLURM_NTASKS",
                                     "SLURM_LOCALID",        "RANK",
                                     "WORLD_SIZE",           "LOCAL_RANK",
                                     "TPSIM_NCCL_FILE",      "TPSIM_NCCL_TIME_LIMIT"};
  struct Kept {
    std::string name, value;
    bool was_set;
  };
  std::vector<Kept> kept;
  for (const char* name : all) {
    const char* const value = std::getenv(name);
    kept.push_back({name, value == nullptr ? "" : value, value != nullptr});
    unsetenv(name);
  }
  for (const auto& [name, value] : variables) setenv(name, value, 1);
  const auto restore = [&] {
    for (const Kept& k : kept)
      if (k.was_set)
        setenv(k.name.c_str(), k.value.c_str(), 1);
      else
        unsetenv(k.name.c_str());
  };
  try {
    auto result = f();
    restore();
    return result;
  } catch (...) {
    restore();
    throw;
  }
}

std::string launched_as(const Variables& variables) {
  return with(variables, [] {
    try {
      const cli::Launched l = cli::read_launched();
      return std::to_string(l.meeting.rank) + " of " + std::to_string(l.meeting.size) + ", local " +
             std::to_string(l.local_rank) + ", at " + l.meeting.file + ", " +
             std::to_string(static_cast<int>(l.meeting.time_limit_s)) + " s";
    } catch (const cli::UsageError& e) {
      return std::string("refused: ") + e.what();
    }
  });
}

}  // namespace

TEST_CASE("launched: a process that nobody has started so is the only one") {
  CHECK(launched_as({}) == "0 of 1, local 0, at , 300 s");
  CHECK(launched_as({{"TPSIM_RANK", ""}, {"TPSIM_WORLD_SIZE", ""}}) ==
        "0 of 1, local 0, at , 300 s");
}

TEST_CASE("launched: each launcher's variables tell the rank, the project's own first") {
  CHECK(launched_as({{"TPSIM_RANK", "2"},
                     {"TPSIM_WORLD_SIZE", "3"},
                     {"TPSIM_NCCL_FILE", "/f"},
                     {"RANK", "0"},
                     {"WORLD_SIZE", "9"},
                     {"TPSIM_NCCL_TIME_LIMIT", "7"}}) == "2 of 3, local 2, at /f, 7 s");
  CHECK(launched_as({{"OMPI_COMM_WORLD_RANK", "5"},
                     {"OMPI_COMM_WORLD_SIZE", "8"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                     {"TPSIM_NCCL_FILE", "m"}}) == "5 of 8, local 1, at m, 300 s");
  CHECK(launched_as({{"SLURM_PROCID", "1"},
                     {"SLURM_NTASKS", "2"},
                     {"SLURM_LOCALID", "0"},
                     {"TPSIM_NCCL_FILE", "m"}}) == "1 of 2, local 0, at m, 300 s");
  CHECK(launched_as(
            {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "3"}, {"TPSIM_NCCL_FILE", "m"}}) ==
        "3 of 4, local 3, at m, 300 s");
}

TEST_CASE("launched: the local rank alone is that of the first launcher that tells it") {
  const auto local = [](const Variables& v) {
    return with(v, [] { return cli::launched_local_rank(); });
  };
  CHECK(local({}) == 0);
  CHECK(local({{"OMPI_COMM_WORLD_LOCAL_RANK", "3"}, {"LOCAL_RANK", "1"}}) == 3);
  CHECK(local({{"SLURM_LOCALID", "2"}}) == 2);
  CHECK_THROWS_AS(local({{"LOCAL_RANK", "none"}}), cli::UsageError);
}

TEST_CASE("launched: what is missing or no number is named") {
  CHECK(launched_as({{"TPSIM_RANK", "1"}}) ==
        "refused: TPSIM_RANK is set and TPSIM_WORLD_SIZE is not");
  CHECK(launched_as({{"WORLD_SIZE", "2"}}) == "refused: WORLD_SIZE is set and RANK is not");
  CHECK(launched_as({{"TPSIM_RANK", "1"}, {"TPSIM_WORLD_SIZE", "2"}}) ==
        "refused: TPSIM_NCCL_FILE is not set: the processes meet at that file");
  for (const char* rank : {"2", "-1", "one", "1x", "99999999999999999999"})
    CHECK(
        launched_as({{"TPSIM_RANK", rank}, {"TPSIM_WORLD_SIZE", "2"}, {"TPSIM_NCCL_FILE", "m"}}) ==
        std::string("refused: TPSIM_RANK is '") + rank + "', wanted a whole number from 0 to 1");
  CHECK(launched_as({{"TPSIM_RANK", "0"}, {"TPSIM_WORLD_SIZE", "0"}}) ==
        "refused: TPSIM_WORLD_SIZE is '0', wanted a whole number from 1 to 4096");
  for (const char* limit : {"soon", "0", "-3", "nan", "1e9"})
    CHECK(launched_as({{"TPSIM_NCCL_TIME_LIMIT", limit}}) ==
          std::string("refused: TPSIM_NCCL_TIME_LIMIT is '") + limit +
              "', wanted seconds, above 0 and up to 86400");
}

}  // namespace tpsim::test::launched_tests
