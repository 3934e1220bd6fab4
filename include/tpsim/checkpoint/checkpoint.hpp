// SPDX-License-Identifier: MIT
// A Hugging Face checkpoint: a directory with config.json and safetensors files.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tpsim/checkpoint/model_config.hpp>
#include <tpsim/checkpoint/safetensors.hpp>

namespace tpsim {

/// Which files count: those that model.safetensors.index.json names, and no other; without an
/// index model.safetensors; without that every *.safetensors, whose names must then differ.
/// With an index a file is opened when one of its tensors is first asked for.
/// Not for use from several threads at once. Copies share the opened files.
class Checkpoint {
 public:
  /// @throws LayoutError when config.json is missing or bad, there are no weights, the index is
  ///         bad or names an absent file, or a file that must be opened is not valid
  explicit Checkpoint(const std::filesystem::path& directory);

  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }
  [[nodiscard]] const ModelConfig& config() const { return config_; }
  /// Names of all tensors, sorted.
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  [[nodiscard]] bool has(std::string_view name) const;
  /// @throws LayoutError when there is no such tensor (with the nearest name), the index promises
  ///         it in a file that has none, or it cannot be a weight (SafetensorsFile::tensor)
  [[nodiscard]] CheckpointTensor tensor(std::string_view name) const;

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
  ModelConfig config_;
  std::map<std::string, std::string, std::less<>> file_of_;  // tensor -> file name
  std::vector<std::string> names_;
  std::string index_;  // name of the index file; empty without one
  std::shared_ptr<std::map<std::string, SafetensorsFile>> files_;
};

}  // namespace tpsim
