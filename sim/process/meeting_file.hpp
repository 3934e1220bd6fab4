// SPDX-License-Identifier: MIT
// What rank 0 leaves for the others, whole or not at all.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tpsim::process {

/// Shown by whoever connects: other programs may find the port, too.
using Secret = std::array<unsigned char, 16>;

struct Invitation {
  std::vector<std::string> addresses;  ///< of rank 0, as numbers; to be tried in this order
  std::uint16_t port = 0;
  Secret secret{};
};

/// Of this machine: all networks' first, then loopback.
[[nodiscard]] std::vector<std::string> own_addresses();
[[nodiscard]] Secret new_secret();

/// Writes under another name and renames, so that no reader sees a part; for this user's eyes.
/// @throws MeetingError when there is a file of that name already, or it cannot be written
void write_invitation(const std::string& file, const Invitation& invitation);
/// Nothing where no file is there yet. @throws MeetingError for a file that is no invitation
[[nodiscard]] std::optional<Invitation> read_invitation(const std::string& file);

}  // namespace tpsim::process
