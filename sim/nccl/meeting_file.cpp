// SPDX-License-Identifier: MIT
#include "sim/nccl/meeting_file.hpp"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include <tpsim/backend/cuda/cuda_ops.hpp>

namespace tpsim::nccl {

void write_meeting(const std::string& file, const std::vector<std::byte>& bytes) {
  std::error_code failed;
  if (std::filesystem::exists(file, failed))
    throw cuda::Error("the meeting file " + file + " is there already; each run needs a new one");
  const std::string own = file + "." + std::to_string(::getpid());
  {
    std::ofstream out(own, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    out.close();
    if (!out) throw cuda::Error("cannot write the meeting file " + own);
  }
  std::filesystem::rename(own, file, failed);
  if (failed) throw cuda::Error("cannot write the meeting file " + file + ": " + failed.message());
}

std::vector<std::byte> read_meeting(const std::string& file, std::size_t bytes,
                                    double time_limit_s) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  std::error_code ignored;
  while (!std::filesystem::exists(file, ignored)) {
    if (std::chrono::duration<double>(Clock::now() - start).count() > time_limit_s)
      throw cuda::Error("rank 0 has not written the meeting file " + file + " within " +
                        std::to_string(time_limit_s) + " s");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::ifstream in(file, std::ios::binary);
  const std::vector<char> all{std::istreambuf_iterator<char>(in), {}};
  if (all.size() != bytes)
    throw cuda::Error("the meeting file " + file + " has " + std::to_string(all.size()) +
                      " bytes, wanted " + std::to_string(bytes));
  std::vector<std::byte> out;
  for (const char c : all) out.push_back(static_cast<std::byte>(c));
  return out;
}

}  // namespace tpsim::nccl
