// SPDX-License-Identifier: MIT
#include "sim/process/meeting_file.hpp"

#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>

#include <tpsim/comm/process/meeting.hpp>
#include <tpsim/core/bytes.hpp>

namespace tpsim::process {
namespace {

constexpr const char* first_line = "tpsim.meeting/1";
constexpr std::size_t most_bytes = 64 << 10;

}  // namespace

std::vector<std::string> own_addresses() {
  std::vector<std::string> out;
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) == 0) {
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(found, ::freeifaddrs);
    for (const ifaddrs* each = all.get(); each != nullptr; each = each->ifa_next) {
      if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
      char text[NI_MAXHOST];
      if (::getnameinfo(each->ifa_addr, sizeof(sockaddr_in), text, sizeof text, nullptr, 0,
                        NI_NUMERICHOST) != 0)
        continue;
      const std::string address = text;
      if (address.rfind("127.", 0) != 0) out.push_back(address);
    }
  }
  out.emplace_back("127.0.0.1");
  return out;
}

Secret new_secret() {
  std::random_device random;
  Secret out;
  for (unsigned char& c : out) c = static_cast<unsigned char>(random());
  return out;
}

void write_invitation(const std::string& file, const Invitation& invitation) {
  std::error_code failed;
  if (std::filesystem::exists(file, failed))
    throw MeetingError("the meeting file " + file + " is there already; each run needs a new one");
  ByteWriter w;
  w.put_text(first_line);
  w.put(invitation.port);
  w.put(invitation.secret);
  w.put(static_cast<std::uint64_t>(invitation.addresses.size()));
  for (const std::string& a : invitation.addresses) w.put_text(a);
  const std::string own = file + "." + std::to_string(::getpid());
  const int out = ::open(own.c_str(), O_WRONLY | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
  bool written = out >= 0 && ::write(out, w.bytes.data(), w.bytes.size()) ==
                                 static_cast<ssize_t>(w.bytes.size());
  if (out >= 0) written = ::close(out) == 0 && written;
  if (written) std::filesystem::create_hard_link(own, file, failed);  // fails where one is
  std::error_code ignored;
  std::filesystem::remove(own, ignored);
  if (written && !failed) return;
  throw MeetingError("cannot write the meeting file " + file + ": is its folder there?");
}

std::optional<Invitation> read_invitation(const std::string& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::nullopt;
  const MeetingError wrong(file + " is no meeting file of this tpsim");
  if (!std::filesystem::is_regular_file(file, ignored)) {
    if (std::filesystem::exists(file, ignored)) throw wrong;
    return std::nullopt;  // rank 0 has removed it meanwhile
  }
  std::ifstream in(file, std::ios::binary);
  if (!in.is_open()) {
    if (!std::filesystem::exists(file, ignored)) return std::nullopt;
    throw MeetingError("cannot read the meeting file " + file);
  }
  std::vector<char> all(most_bytes + 1);
  in.read(all.data(), static_cast<std::streamsize>(all.size()));
  all.resize(static_cast<std::size_t>(in.gcount()));
  if (all.empty() || all.size() > most_bytes) throw wrong;
  Invitation out;
  try {
    ByteReader r(std::as_bytes(std::span<const char>(all)));
    if (r.get_text() != first_line) throw wrong;
    out.port = r.get<std::uint16_t>();
    out.secret = r.get<Secret>();
    for (auto n = r.get<std::uint64_t>(); n > 0; --n) out.addresses.push_back(r.get_text());
  } catch (const std::length_error&) {
    throw wrong;
  }
  return out;
}

}  // namespace tpsim::process
