// SPDX-License-Identifier: MIT
// Where a library of CUDA may lie on a machine whose linker does not know it.
#pragma once

#include <glob.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace tpsim::cuda {

/// Files called `name`, the likeliest first: of the toolkit that $CUDA_HOME or $CUDA_PATH names, of
/// `toolkit`, of /usr/local/cuda, and of pip's packages (nvidia-cublas, nvidia-nccl-cu13) of each
/// Python in $PATH: bin/ beside lib/python3.12/site-packages/nvidia/*/lib.
[[nodiscard]] inline std::vector<std::string> library_places(const std::string& name,
                                                             const std::string& toolkit) {
  std::vector<std::string> patterns;
  const auto variable = [](const char* which) {
    const char* value = std::getenv(which);
    return std::string(value == nullptr ? "" : value);
  };
  for (const char* home : {"CUDA_HOME", "CUDA_PATH"})
    if (const std::string folder = variable(home); !folder.empty())
      patterns.push_back(folder + "/lib64/" + name);
  patterns.push_back(toolkit + "/" + name);
  patterns.push_back("/usr/local/cuda/lib64/" + name);
  const std::string path = variable("PATH");
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    if (end > begin)
      patterns.push_back(path.substr(begin, end - begin) +
                         "/../lib/python3*/*-packages/nvidia/*/lib/" + name);
    begin = end + 1;
  }
  std::vector<std::string> found;
  for (const std::string& pattern : patterns) {
    glob_t files{};
    if (glob(pattern.c_str(), 0, nullptr, &files) == 0)
      for (std::size_t i = 0; i < files.gl_pathc; ++i) found.emplace_back(files.gl_pathv[i]);
    globfree(&files);
  }
  return found;
}

}  // namespace tpsim::cuda
