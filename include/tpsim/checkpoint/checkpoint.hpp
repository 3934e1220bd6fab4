// SPDX-License-Identifier: MIT
// A Hugging Face checkpoint: a directory with config.json and safetensors files.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tpsim/checkpoint/bound_model.hpp>
#include <tpsim/checkpoint/safetensors.hpp>

namespace tpsim {

/// The tensors of a directory, without its config. Which files count: those that
/// model.safetensors.index.json names, and no other; without an index model.safetensors; without
/// that every *.safetensors, whose names must then differ. With an index a file is opened when one
/// of its tensors is first asked for.
/// Not for use from several threads at once. Copies share the opened files.
class CheckpointFiles {
 public:
  /// @throws LayoutError when config.json or the weights are missing, the index is bad or names an
  ///         absent file, or a file that must be opened is not valid
  explicit CheckpointFiles(const std::filesystem::path& directory);

  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }
  /// Names of all tensors, sorted.
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  [[nodiscard]] bool has(std::string_view name) const;
  /// @throws LayoutError when there is no such tensor (with the nearest name), the index promises
  ///         it in a file that has none, or it cannot be a weight (SafetensorsFile::tensor)
  [[nodiscard]] CheckpointTensor tensor(std::string_view name) const;
  /// Name, dtype, dimensions and place of all tensors, sorted by name. Opens every file.
  /// @throws LayoutError with every tensor that the index promises in a file that has none
  [[nodiscard]] std::vector<SafetensorsEntry> entries() const;

  /// Tensors below a module, by whole path components: `model.layers.1` does not own the tensors
  /// of `model.layers.10`. Sorted; empty when there is no such module.
  [[nodiscard]] std::vector<std::string> children(std::string_view module) const;
  /// Every module path that owns a tensor, directly or not, sorted: `model`, `model.layers`, ...
  [[nodiscard]] std::vector<std::string> modules() const;

  /// How many files are open by now.
  [[nodiscard]] std::size_t opened() const { return files_->size(); }

 private:
  void read_index(const std::filesystem::path& index);
  void read_files(const std::vector<std::filesystem::path>& files);
  const SafetensorsFile& open(const std::string& file) const;

  std::filesystem::path directory_;
  std::map<std::string, std::string, std::less<>> file_of_;  // tensor -> file name
  std::vector<std::string> names_;
  std::string index_;  // name of the index file; empty without one
  std::shared_ptr<std::map<std::string, SafetensorsFile>> files_;
};

/// The tensors with what the plan of their architecture says of them.
class Checkpoint : public CheckpointFiles {
 public:
  /// @throws LayoutError as CheckpointFiles, and when config.json cannot be used (bind_model)
  explicit Checkpoint(const std::filesystem::path& directory);
  [[nodiscard]] const BoundModel& model() const { return model_; }

 private:
  BoundModel model_;
};

}  // namespace tpsim
