// SPDX-License-Identifier: MIT
// Writes a Hugging Face checkpoint: config.json, safetensors files and their index.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tpsim/core/shape.hpp>

namespace tpsim {

/// A tensor to be written: of rank 1 or 2, of floating-point numbers.
struct NewTensor {
  std::string name;
  Shape shape;  ///< [out, in] or [out]
  DType dtype = DType::f32;
  [[nodiscard]] Index bytes() const { return shape.size() * bytes_of(dtype); }
};

/// Tensors that are neighbours in the list and share a file.
struct ShardFile {
  std::string
      name;  ///< "model-00001-of-00003.safetensors"; "model.safetensors" when it is the only
  std::size_t first = 0, count = 0;  ///< tensors [first, first + count)
  Index bytes = 0;                   ///< of these tensors, without the header
};

/// Fills files in the order of the list. A file has at most `most` bytes of tensors, unless one
/// tensor alone has more.
/// Source: huggingface_hub, split_torch_state_dict_into_shards.
[[nodiscard]] std::vector<ShardFile> shard_files(std::span<const NewTensor> tensors, Index most);

/// The bytes before the data: length, JSON with {"format": "pt"}, and blanks up to a multiple of
/// 8. The tensors' data follow in the order of the list, without holes.
/// @throws LayoutError for two tensors of one name, a dtype that is no number, or a header that
///         readers refuse (over 100 MB)
/// Source: huggingface/safetensors, README "Format".
[[nodiscard]] std::string safetensors_header(std::span<const NewTensor> tensors);

/// model.safetensors.index.json: the file of every tensor, and the bytes of all.
[[nodiscard]] std::string checkpoint_index(std::span<const NewTensor> tensors,
                                           std::span<const ShardFile> files);

/// Writes elements of tensors[tensor], row by row, from number `element` on into `out`, whose bytes
/// are whole little-endian elements. Called from several threads at once, in any order.
using FillTensor = std::function<void(std::size_t tensor, Index element, std::span<std::byte> out)>;

struct WriteOptions {
  Index max_shard_bytes = 5'000'000'000;
  bool overwrite = false;  ///< replace a checkpoint that is there; other files stay
  int threads = 0;         ///< 0: as many as there are processors
};

struct WrittenFile {
  std::string name;
  Index bytes = 0;
  Index tensors = 0;
};

/// Creates `directory` where it is missing and writes the checkpoint into it. The files appear
/// together at the end: until then they are called NAME.partial, and after an error, also one that
/// `fill` throws, none of them is left and what was there before is as it was. Memory does not grow
/// with the tensors. Files are not synced to the disk.
/// @param config  text of config.json
/// @returns the files in the order of their names
/// @throws LayoutError when a checkpoint is there and may not be overwritten, the directory cannot
///         be written, the disk is full, and as safetensors_header; and what `fill` throws
std::vector<WrittenFile> write_checkpoint(const std::filesystem::path& directory,
                                          std::string_view config,
                                          std::span<const NewTensor> tensors,
                                          const FillTensor& fill, const WriteOptions& options = {});

}  // namespace tpsim
