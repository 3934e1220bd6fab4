// SPDX-License-Identifier: MIT
// Files of one directory that appear together, or not at all.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <tpsim/core/shape.hpp>

namespace tpsim::checkpoint_detail {

/// A file that is being written; every error is a LayoutError with its final name.
class NewFile {
 public:
  /// @param bytes  how long it will be; asked of the disk at once where it can promise room
  NewFile(std::filesystem::path partial, std::string name, Index bytes);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  /// Safe from several threads.
  void write_at(Index offset, std::span<const std::byte> bytes) const;
  /// Some file systems tell only now that there was no room.
  void close();

 private:
  [[noreturn]] void refuse(int error) const;
  std::filesystem::path partial_;
  std::string name_;
  int fd_ = -1;
};

class NewFiles {
 public:
  /// Creates the directory where it is missing. @throws LayoutError when it cannot be
  explicit NewFiles(const std::filesystem::path& directory);
  /// Without a commit: removes every partial file, and directories that the constructor created.
  ~NewFiles();
  NewFiles(const NewFiles&) = delete;
  NewFiles& operator=(const NewFiles&) = delete;

  /// Creates NAME.partial. @throws LayoutError, also when that is there: another program may be
  ///   writing it
  [[nodiscard]] std::unique_ptr<NewFile> create(const std::string& name, Index bytes);
  /// Puts all created files in place, in the order of their creation, and takes `replaced` (names
  /// in the directory) away. @throws LayoutError; then everything is as it was
  void commit(const std::vector<std::string>& replaced);

 private:
  std::filesystem::path directory_;
  std::vector<std::filesystem::path> made_;  // directories, outermost first
  std::vector<std::string> names_;
  bool committed_ = false;
};

}  // namespace tpsim::checkpoint_detail
