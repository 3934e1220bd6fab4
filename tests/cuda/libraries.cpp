// SPDX-License-Identifier: MIT
// Where cuBLASLt and NCCL are looked for on a machine that the program was not built on.
#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "sim/cuda/library_places.hpp"

#include <tests/support/catch.hpp>
#include <tests/support/test_files.hpp>

namespace {

namespace fs = std::filesystem;
using tpsim::cuda::library_places;

/// An environment variable that is as before again when the scope ends.
class WithVariable {
 public:
  WithVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before, had_ = true;
    setenv(name, value.c_str(), 1);
  }
  WithVariable(const WithVariable&) = delete;
  WithVariable& operator=(const WithVariable&) = delete;
  ~WithVariable() { had_ ? setenv(name_, before_.c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::string before_;
  bool had_ = false;
};

std::string made(const fs::path& file) {
  fs::create_directories(file.parent_path());
  std::ofstream(file).put(' ');
  return file.string();
}

/// Places that lie below `folder`: the machine may have a CUDA of its own.
std::vector<std::string> below(const fs::path& folder, const std::string& toolkit = "/nowhere") {
  std::vector<std::string> out;
  for (const std::string& place : library_places("libtried.so.1", toolkit))
    if (place.rfind(folder.string(), 0) == 0) out.push_back(place);
  return out;
}

TEST_CASE("cuda libraries: a toolkit is found by its variables, then that of the build") {
  const tpsim::test::TempDir at;
  const std::string home = made(at.path() / "home/lib64/libtried.so.1"),
                    path = made(at.path() / "path/lib64/libtried.so.1"),
                    built = made(at.path() / "built/libtried.so.1");
  made(at.path() / "home/lib64/libother.so.1");
  const WithVariable first("CUDA_HOME", at.path() / "home"),
      second("CUDA_PATH", at.path() / "path"), none("PATH", "");
  CHECK(below(at.path(), at.path() / "built") == std::vector<std::string>{home, path, built});
}

TEST_CASE("cuda libraries: packages of a Python in the PATH have them") {
  const tpsim::test::TempDir at;
  const fs::path packages = at.path() / "venv/lib/python3.12/site-packages";
  made(packages / "nvidia/cu13/lib/libtried.so.1");
  made(at.path() / "venv/bin/python3");
  const WithVariable no_home("CUDA_HOME", ""), no_path("CUDA_PATH", "");
  {
    const WithVariable path("PATH", "/nowhere::" + (at.path() / "venv/bin").string() + ":");
    const std::vector<std::string> found = below(at.path());
    REQUIRE(found.size() == 1);
    CHECK(fs::equivalent(found[0], packages / "nvidia/cu13/lib/libtried.so.1"));
  }
  const WithVariable other("PATH", "/nowhere");
  CHECK(below(at.path()).empty());
}

}  // namespace
