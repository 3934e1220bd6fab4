// SPDX-License-Identifier: MIT
// The safetensors format: a validated header and read-only access to the tensors' bytes.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tpsim/layout/full_tensor.hpp>

namespace tpsim {

/// One entry of a safetensors header, as the file has it.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;        ///< "BF16", "I64", ...; always a known one
  std::vector<Index> dims;  ///< never negative; empty for a scalar
  Index begin = 0;          ///< first byte, counted from the start of the data
  Index end = 0;            ///< one past the last byte
};

/// A header that keeps every rule of the format.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< sorted by name
  std::map<std::string, std::string> metadata;
  Index data_begin = 0;  ///< place of the data in the file: 8 + length of the header
  Index data_bytes = 0;  ///< the entries cover [0, data_bytes) without hole or overlap
  /// The entry of that name, or null.
  [[nodiscard]] const SafetensorsEntry* find(std::string_view name) const;
};

/// Reads and checks the header of a whole file in memory; the data is not looked at. Memory grows
/// with the header that is really there, never with the sizes that it claims.
/// @param file_name  names the file in messages
/// @throws LayoutError with every broken rule: header length (at most 100 MB and inside the file),
///         JSON (nesting, duplicate names), dtype, shape, offsets (order, overlap, holes, end of
///         file), metadata
/// Source: huggingface/safetensors, README "Format".
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                                         const std::string& file_name);

/// A tensor of a checkpoint that can be used as a weight: rank 1 or 2, of floating-point numbers.
struct CheckpointTensor {
  std::string name;
  Shape shape;  ///< [out, in] or [out], as stored
  DType dtype = DType::f32;
  std::filesystem::path file;
  std::shared_ptr<const Values> values;  ///< keeps the mapped file alive
};

/// The tensor as a weight_loader wants it. All its rows stand for `meaning`, in order.
/// @throws LayoutError (names) when `meaning` has another shape
[[nodiscard]] FullTensor full_tensor(const CheckpointTensor& tensor, const Logical& meaning);

/// A safetensors file, mapped read-only. The file must not be shortened while it is mapped (the
/// system would end the process with SIGBUS).
class SafetensorsFile {
 public:
  /// Maps a regular file, or a symbolic link to one, as download caches keep them.
  /// @throws LayoutError when it is missing, no regular file or not valid
  explicit SafetensorsFile(const std::filesystem::path& path);
  /// A file that is already in memory. @throws LayoutError when it is not valid
  SafetensorsFile(std::vector<std::byte> bytes, const std::string& file_name);

  [[nodiscard]] const SafetensorsHeader& header() const { return header_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// @throws LayoutError when there is none of that name (with the nearest name), when its dtype
  ///         is not F64, F32, F16 or BF16, or when its rank is not 1 or 2
  [[nodiscard]] CheckpointTensor tensor(std::string_view name) const;
  /// Packed little-endian elements of any tensor, whatever its dtype and rank (token ids, say).
  /// They live as long as this object. @throws LayoutError when there is none of that name
  [[nodiscard]] std::span<const std::byte> raw(std::string_view name) const;

 private:
  [[nodiscard]] const SafetensorsEntry& require(std::string_view name) const;

  std::filesystem::path path_;
  std::shared_ptr<const void> owner_;  // keeps bytes_ valid
  std::span<const std::byte> bytes_;
  SafetensorsHeader header_;
};

}  // namespace tpsim
