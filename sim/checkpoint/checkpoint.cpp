// SPDX-License-Identifier: MIT
// A Hugging Face checkpoint: which files count, and which of them holds a tensor.
#include <tpsim/checkpoint/checkpoint.hpp>

#include <algorithm>
#include <set>

#include "mapped_file.hpp"
#include "nearest.hpp"
#include "problems.hpp"
#include "strict_json.hpp"

namespace tpsim {
using namespace checkpoint_detail;

namespace {

namespace fs = std::filesystem;

constexpr Index max_index = 100'000'000;

/// A name in the index must be a file of this very directory.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

std::vector<fs::path> safetensors_files(const fs::path& directory) {
  std::vector<fs::path> found;
  std::error_code failed;
  for (fs::directory_iterator it(directory, failed), end; !failed && it != end;
       it.increment(failed))
    if (it->path().extension() == ".safetensors") found.push_back(it->path());
  if (failed)
    throw LayoutError("cannot read " + shown(directory.string()), {{"file", failed.message()}});
  std::sort(found.begin(), found.end());
  return found;
}

void require_directory(const fs::path& directory) {
  const std::string cannot = "cannot read " + shown(directory.string());
  std::error_code ignored;
  const fs::file_status status = fs::status(directory, ignored);
  if (status.type() == fs::file_type::not_found)
    throw LayoutError(cannot, {{"file", "there is no such directory"}});
  if (status.type() != fs::file_type::directory)
    throw LayoutError(cannot, {{"file", "it is not a directory"}},
                      "give the directory that holds config.json and the safetensors files");
  if (fs::symlink_status(directory / "config.json", ignored).type() == fs::file_type::not_found)
    throw LayoutError(cannot, {{"file", "the directory has no config.json"}},
                      "a checkpoint directory holds config.json and safetensors files");
}

}  // namespace

Checkpoint::Checkpoint(const fs::path& directory)
    : CheckpointFiles(directory),
      model_(bind_model(read_config_text(directory / "config.json"),
                        (directory / "config.json").string())) {}

CheckpointFiles::CheckpointFiles(const fs::path& directory)
    : directory_(directory), files_(std::make_shared<std::map<std::string, SafetensorsFile>>()) {
  require_directory(directory);

  const auto exists = [&](const char* name) {
    std::error_code ignored;
    return fs::symlink_status(directory / name, ignored).type() != fs::file_type::not_found;
  };
  if (exists("model.safetensors.index.json")) {
    read_index(directory / "model.safetensors.index.json");
  } else if (exists("model.safetensors")) {
    read_files({directory / "model.safetensors"});
  } else {
    const std::vector<fs::path> files = safetensors_files(directory);
    if (files.empty())
      throw LayoutError("cannot read " + shown(directory.string()),
                        {{"file", "the directory has no *.safetensors file"}},
                        "other formats (.bin, .gguf) must be converted to safetensors first");
    read_files(files);
  }
  for (const auto& [tensor, file] : file_of_) names_.push_back(tensor);
}

void CheckpointFiles::read_index(const fs::path& index) {
  index_ = index.filename().string();
  const MappedFile mapped(index, max_index);
  const nlohmann::json json = parse_strict_json(mapped.text(), index.string());
  const std::string cannot = "cannot use " + shown(index.string());
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object())
    throw LayoutError(cannot, {{"index",
                                "weight_map is missing or no object; it must map tensor "
                                "names to file names"}});
  Problems problems;
  std::map<std::string, std::string> files;  // file -> a tensor that it must hold
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) {
      problems.add("index", "the file of tensor " + shown(tensor) + " must be a string");
      continue;
    }
    const auto& file_name = file.get_ref<const std::string&>();
    if (!is_plain_file_name(file_name))
      problems.add("index", "tensor " + shown(tensor) + " is in file " + shown(file_name) +
                                "; only names of files in this directory are legal");
    else
      files.emplace(file_name, tensor), file_of_.emplace(tensor, file_name);
  }
  for (const auto& [file, tensor] : files) {
    std::error_code ignored;
    if (!fs::exists(directory_ / file, ignored))
      problems.add("index", "tensor " + shown(tensor) + " is in file " + shown(file) +
                                ", which does not exist");
  }
  if (problems.empty() && files.empty()) problems.add("index", "weight_map names no tensor");
  problems.throw_if_any(cannot);
}

void CheckpointFiles::read_files(const std::vector<fs::path>& files) {
  Problems problems;
  for (const fs::path& path : files) {
    const std::string file = path.filename().string();
    for (const SafetensorsEntry& entry : open(file).header().entries) {
      const auto [it, added] = file_of_.emplace(entry.name, file);
      if (!added)
        problems.add("names", "tensor " + shown(entry.name) + " is in both " + shown(it->second) +
                                  " and " + shown(file));
    }
  }
  problems.throw_if_any("cannot read " + shown(directory_.string()),
                        "a model.safetensors.index.json would say which files count");
}

const SafetensorsFile& CheckpointFiles::open(const std::string& file) const {
  const auto it = files_->find(file);
  if (it != files_->end()) return it->second;
  return files_->emplace(file, SafetensorsFile(directory_ / file)).first->second;
}

bool CheckpointFiles::has(std::string_view name) const { return file_of_.contains(name); }

std::vector<SafetensorsEntry> CheckpointFiles::entries() const {
  Problems problems;
  std::vector<SafetensorsEntry> out;
  for (const auto& [name, file] : file_of_) {
    if (const SafetensorsEntry* entry = open(file).header().find(name))
      out.push_back(*entry);
    else
      problems.add("index", "tensor " + shown(name) + " should be in file " + shown(file) +
                                ", which has no such tensor");
  }
  problems.throw_if_any("cannot use " + shown((directory_ / index_).string()));
  return out;
}

CheckpointTensor CheckpointFiles::tensor(std::string_view name) const {
  const auto it = file_of_.find(name);
  if (it == file_of_.end()) {
    const std::string near = nearest(name, names_);
    throw LayoutError(shown(directory_.string()) + " has no tensor " + shown(name), {},
                      near.empty() ? "" : "did you mean " + shown(near) + "?");
  }
  const SafetensorsFile& file = open(it->second);
  if (!index_.empty() && file.header().find(name) == nullptr)
    throw LayoutError("cannot use " + shown((directory_ / index_).string()),
                      {{"index", "tensor " + shown(name) + " should be in file " +
                                     shown(it->second) + ", which has no such tensor"}});
  return file.tensor(name);
}

std::vector<std::string> CheckpointFiles::children(std::string_view module) const {
  const std::string prefix = std::string(module) + ".";
  std::vector<std::string> found;
  for (auto it = file_of_.lower_bound(prefix); it != file_of_.end(); ++it) {
    if (!it->first.starts_with(prefix)) break;
    found.push_back(it->first);
  }
  return found;
}

std::vector<std::string> CheckpointFiles::modules() const {
  // Deeper paths of a hostile name are left out: their number times their length could be large.
  constexpr int max_depth = 16;
  std::set<std::string> found;
  for (const std::string& name : names_) {
    int depth = 0;
    for (auto dot = name.find('.'); dot != std::string::npos && depth < max_depth;
         dot = name.find('.', dot + 1), ++depth)
      if (dot > 0) found.insert(name.substr(0, dot));
  }
  return {found.begin(), found.end()};
}

}  // namespace tpsim
