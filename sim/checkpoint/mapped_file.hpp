// SPDX-License-Identifier: MIT
// A file mapped into memory, read-only.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include <tpsim/core/shape.hpp>

namespace tpsim::checkpoint_detail {

/// Owns one POSIX mapping. Only regular files are accepted (through symbolic links, as download
/// caches have them): a pipe could block, a device has no end.
class MappedFile {
 public:
  /// @param limit  refuse longer files (bytes); 0 for no limit
  /// @throws LayoutError when the file is missing, unreadable, not regular or too long
  explicit MappedFile(const std::filesystem::path& path, Index limit = 0);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] std::string_view text() const {
    return {reinterpret_cast<const char*>(data_), size_};
  }

 private:
  const std::byte* data_ = nullptr;  // null for an empty file
  std::size_t size_ = 0;
};

}  // namespace tpsim::checkpoint_detail
