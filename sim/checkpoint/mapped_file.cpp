// SPDX-License-Identifier: MIT
// A file mapped into memory, read-only.
#include "mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "problems.hpp"

namespace tpsim::checkpoint_detail {
namespace {

class Descriptor {
 public:
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  explicit Descriptor(const std::filesystem::path& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& why,
                         const std::string& hint = {}) {
  throw LayoutError("cannot read " + shown(path.string()), {{"file", why}}, hint);
}

std::string reason(int error) { return std::generic_category().message(error); }

const char* kind(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path, Index limit) {
  const Descriptor file(path);
  const int open_error = errno;
  if (file.get() < 0 && open_error == ENXIO) refuse(path, "it is a socket, not a regular file");
  if (file.get() < 0) refuse(path, reason(open_error));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) refuse(path, reason(errno));
  if (!S_ISREG(info.st_mode))
    refuse(path, std::string("it is ") + kind(info.st_mode) + ", not a regular file");
  if (limit > 0 && info.st_size > limit)
    refuse(path, fmt::format("it has {} bytes; at most {} are read here", info.st_size, limit));
  if (info.st_size == 0) return;
  size_ = static_cast<std::size_t>(info.st_size);
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) refuse(path, "mmap: " + reason(errno));
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace tpsim::checkpoint_detail
