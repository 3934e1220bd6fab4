// SPDX-License-Identifier: MIT
// A few bytes from one process to others through a file, whole or not at all.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tpsim::nccl {

/// Writes the bytes under another name and renames them, so that no reader sees a part.
/// @throws cuda::Error when there is a file of that name already, or it cannot be written
void write_meeting(const std::string& file, const std::vector<std::byte>& bytes);
/// Waits until the file is there. @throws cuda::Error after the time limit, or for another length
[[nodiscard]] std::vector<std::byte> read_meeting(const std::string& file, std::size_t bytes,
                                                  double time_limit_s);

}  // namespace tpsim::nccl
