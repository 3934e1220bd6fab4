// SPDX-License-Identifier: MIT
#include "new_files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "problems.hpp"

namespace tpsim::checkpoint_detail {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void cannot_write(const fs::path& path, const std::string& why,
                               const std::string& hint = {}) {
  throw LayoutError("cannot write " + shown(path.string()), {{"file", why}}, hint);
}

fs::path partial(const fs::path& path) { return path.string() + ".partial"; }
fs::path replaced_name(const fs::path& path) { return path.string() + ".replaced"; }

}  // namespace

NewFile::NewFile(fs::path partial, std::string name, Index bytes)
    : partial_(std::move(partial)), name_(std::move(name)) {
  fd_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0 && errno == EEXIST)
    cannot_write(name_, shown(partial_.string()) + " is there already",
                 "another program is writing it, or one was killed; then remove it");
  if (fd_ < 0) refuse(errno);
#ifdef __linux__
  if (bytes > 0 && ::fallocate(fd_, 0, 0, bytes) != 0 &&
      (errno == ENOSPC || errno == EFBIG || errno == EDQUOT)) {
    // The destructor does not run for what was never constructed.
    const int error = errno;
    ::close(fd_);
    ::unlink(partial_.c_str());
    refuse(error);
  }
#else
  static_cast<void>(bytes);
#endif
}

NewFile::~NewFile() {
  if (fd_ >= 0) ::close(fd_);
}

void NewFile::refuse(int error) const {
  cannot_write(name_, std::generic_category().message(error),
               error == ENOSPC || error == EDQUOT || error == EFBIG
                   ? "nothing of the checkpoint is left there"
                   : "name a folder that is writable");
}

void NewFile::write_at(Index offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) refuse(n < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += n;
  }
}

void NewFile::close() {
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0 && errno != EINTR) refuse(errno);
}

NewFiles::NewFiles(const fs::path& directory) : directory_(directory) {
  std::vector<fs::path> missing;
  std::error_code failed;
  for (fs::path p = fs::absolute(directory, failed).lexically_normal();
       fs::symlink_status(p, failed).type() == fs::file_type::not_found && p.has_relative_path();
       p = p.parent_path())
    if (p.has_filename()) missing.push_back(p);
  std::reverse(missing.begin(), missing.end());
  for (const fs::path& p : missing) {
    fs::create_directory(p, failed);
    if (failed) break;
    made_.push_back(p);
  }
  if (!failed && fs::is_directory(directory, failed)) return;
  const std::string why = failed ? failed.message() : "it is no directory";
  for (auto p = made_.rbegin(); p != made_.rend(); ++p) fs::remove(*p, failed);
  cannot_write(directory, why, "name a folder that is writable, or one that can be created");
}

NewFiles::~NewFiles() {
  if (committed_) return;
  std::error_code ignored;
  for (const std::string& name : names_) fs::remove(partial(directory_ / name), ignored);
  for (auto p = made_.rbegin(); p != made_.rend(); ++p) fs::remove(*p, ignored);
}

std::unique_ptr<NewFile> NewFiles::create(const std::string& name, Index bytes) {
  const fs::path path = directory_ / name;
  auto file = std::make_unique<NewFile>(partial(path), path.string(), bytes);
  names_.push_back(name);  // only now: a partial file of another program is not ours to remove
  return file;
}

void NewFiles::commit(const std::vector<std::string>& replaced) {
  std::vector<std::pair<fs::path, fs::path>> moves;  // from, to
  for (const std::string& name : replaced)
    moves.emplace_back(directory_ / name, replaced_name(directory_ / name));
  for (const std::string& name : names_)
    moves.emplace_back(partial(directory_ / name), directory_ / name);
  std::error_code failed, ignored;
  for (std::size_t i = 0; i < moves.size(); ++i) {
    fs::rename(moves[i].first, moves[i].second, failed);
    if (!failed) continue;
    for (std::size_t k = i; k-- > 0;) fs::rename(moves[k].second, moves[k].first, ignored);
    cannot_write(moves[i].second, failed.message());
  }
  committed_ = true;
  for (const std::string& name : replaced) fs::remove(replaced_name(directory_ / name), ignored);
}

}  // namespace tpsim::checkpoint_detail
