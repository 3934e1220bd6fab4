// SPDX-License-Identifier: MIT
#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tpsim/checkpoint/safetensors_writer.hpp>

#include "fill_file.hpp"
#include "new_files.hpp"
#include "problems.hpp"

namespace tpsim {
using namespace checkpoint_detail;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::size_t longest_header = 100'000'000;
constexpr const char* single_file = "model.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";
constexpr const char* config_file = "config.json";

std::string_view format_name(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "F64";
    case DType::f32:
      return "F32";
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
    default:
      return "";
  }
}

/// "model-00001-of-00003.safetensors", whatever the numbers.
bool is_shard_name(std::string_view name) {
  const auto take = [&](std::string_view text) {
    const bool there = name.starts_with(text);
    if (there) name.remove_prefix(text.size());
    return there;
  };
  const auto take_digits = [&] {
    const std::size_t n = std::min(name.find_first_not_of("0123456789"), name.size());
    name.remove_prefix(n);
    return n >= 5;
  };
  return take("model-") && take_digits() && take("-of-") && take_digits() && name == ".safetensors";
}

/// What a checkpoint consists of; other files of the directory are none of its business.
bool is_checkpoint_file(std::string_view name) {
  return name == config_file || name == single_file || name == index_file || is_shard_name(name);
}

/// The names in the directory that a new checkpoint takes the place of, sorted.
std::vector<std::string> present_files(const fs::path& directory) {
  std::vector<std::string> found;
  std::error_code failed;
  for (fs::directory_iterator it(directory, failed), end; !failed && it != end;
       it.increment(failed)) {
    const std::string name = it->path().filename().string();
    if (!is_checkpoint_file(name)) continue;
    if (it->symlink_status().type() == fs::file_type::directory)
      throw LayoutError("cannot write " + shown(it->path().string()), {{"file", "it is a folder"}});
    found.push_back(name);
  }
  std::sort(found.begin(), found.end());
  return found;
}

void refuse_present(const fs::path& directory, const std::vector<std::string>& present) {
  if (present.empty()) return;
  const std::string more =
      present.size() > 1 ? fmt::format(" and {} more of its files", present.size() - 1) : "";
  throw LayoutError("a checkpoint is in " + shown(directory.string()) + " already",
                    {{"file", shown(present.front()) + more + " would be overwritten"}},
                    "name another folder, or overwrite it with --force");
}

// Headers are left out: what they need is told by the file system when the files are created.
void require_room(const fs::path& directory, std::span<const ShardFile> files) {
  double needed = 0;  // a double: the sum may be past 2^63
  for (const ShardFile& file : files) needed += static_cast<double>(file.bytes);
  std::error_code failed;
  const fs::space_info space = fs::space(directory, failed);
  if (failed || static_cast<double>(space.available) >= needed) return;
  throw LayoutError(
      "cannot write " + shown(directory.string()),
      {{"file", fmt::format("the checkpoint needs {:.3f} GB, and the disk has {:.3f} GB left",
                            needed / 1e9, static_cast<double>(space.available) / 1e9)}},
      "use fewer layers or smaller sizes, or another disk");
}

WrittenFile write_text(NewFiles& out, const std::string& name, std::string_view text) {
  const auto file = out.create(name, static_cast<Index>(text.size()));
  file->write_at(0, std::as_bytes(std::span(text.data(), text.size())));
  file->close();
  return {name, static_cast<Index>(text.size()), 0};
}

}  // namespace

std::vector<ShardFile> shard_files(std::span<const NewTensor> tensors, Index most) {
  std::vector<ShardFile> files;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Index bytes = tensors[i].bytes();
    if (files.empty() || bytes > most - files.back().bytes) files.push_back({"", i, 0, 0});
    ++files.back().count;
    files.back().bytes += bytes;
  }
  for (std::size_t i = 0; i < files.size(); ++i)
    files[i].name = files.size() == 1
                        ? single_file
                        : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
  return files;
}

std::string safetensors_header(std::span<const NewTensor> tensors) {
  Problems problems;
  Json json{{"__metadata__", {{"format", "pt"}}}};
  Index at = 0;
  for (const NewTensor& t : tensors) {
    if (format_name(t.dtype).empty())
      problems.add("dtype", fmt::format("tensor {} is {}; files hold f64, f32, bf16 and f16",
                                        shown(t.name), name(t.dtype)));
    if (json.contains(t.name))
      problems.add("names", t.name == "__metadata__" ? "no tensor can be called __metadata__"
                                                     : shown(t.name) + " appears twice");
    Json& entry = json[t.name];
    entry["dtype"] = format_name(t.dtype);
    entry["shape"] = Json::array();
    for (int d = 0; d < t.shape.rank(); ++d) entry["shape"].push_back(t.shape.dim(d));
    entry["data_offsets"] = {at, at + t.bytes()};
    at += t.bytes();
  }
  std::string text;
  try {
    text = json.dump();
  } catch (const nlohmann::json::exception&) {
    problems.add("names", "a tensor's name is no UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > longest_header)
    problems.add("header", fmt::format("it has {} bytes; readers take {} at most: write smaller "
                                       "files",
                                       text.size(), longest_header));
  problems.throw_if_any("cannot write a safetensors header");
  const std::uint64_t length = text.size();
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  return out + text;
}

std::string checkpoint_index(std::span<const NewTensor> tensors, std::span<const ShardFile> files) {
  Index total = 0;
  nlohmann::json map = nlohmann::json::object();  // sorted by name
  for (const ShardFile& file : files)
    for (const NewTensor& t : tensors.subspan(file.first, file.count)) {
      map[t.name] = file.name;
      total += t.bytes();
    }
  const Json index{{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}};
  return index.dump(2) + "\n";
}

std::vector<WrittenFile> write_checkpoint(const fs::path& directory, std::string_view config,
                                          std::span<const NewTensor> tensors,
                                          const FillTensor& fill, const WriteOptions& options) {
  const std::vector<std::string> present = present_files(directory);
  if (!options.overwrite) refuse_present(directory, present);
  const std::vector<ShardFile> files = shard_files(tensors, options.max_shard_bytes);
  NewFiles out(directory);
  require_room(directory, files);
  std::vector<std::string> headers;  // all of them before hours of writing
  for (const ShardFile& file : files)
    headers.push_back(safetensors_header(tensors.subspan(file.first, file.count)));
  std::vector<WrittenFile> written;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const ShardFile& shard = files[i];
    const Index begin = static_cast<Index>(headers[i].size());
    const auto file = out.create(shard.name, begin + shard.bytes);
    file->write_at(0, std::as_bytes(std::span(headers[i])));
    fill_file(*file, begin, tensors, shard, fill, options.threads);
    file->close();
    written.push_back({shard.name, begin + shard.bytes, static_cast<Index>(shard.count)});
  }
  if (files.size() > 1)
    written.push_back(write_text(out, index_file, checkpoint_index(tensors, files)));
  // Last: a directory without config.json is no checkpoint to any reader.
  written.push_back(write_text(out, config_file, config));
  out.commit(present);
  std::sort(written.begin(), written.end(),
            [](const WrittenFile& a, const WrittenFile& b) { return a.name < b.name; });
  return written;
}

}  // namespace tpsim
