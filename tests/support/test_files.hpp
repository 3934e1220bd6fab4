// SPDX-License-Identifier: MIT
// Where the test data lies, temporary directories, and safetensors files written by hand.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <tpsim/core/error.hpp>

namespace tpsim::test {

/// A file or folder of tests/data.
inline std::filesystem::path test_data(std::string_view name) {
#ifdef TPSIM_TEST_DATA
  return std::filesystem::path(TPSIM_TEST_DATA) / name;
#else
  return std::filesystem::path(__FILE__).parent_path().parent_path() / "data" / name;
#endif
}

/// A fresh directory that is removed at the end.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tpsim-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Writes a file and returns its path.
  std::filesystem::path write(std::string_view name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

/// Length, header and data of a safetensors file, as they are given.
inline std::string safetensors_bytes(std::string_view header, std::string_view data,
                                     std::uint64_t length) {
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file.append(header).append(data);
}
inline std::string safetensors_bytes(std::string_view header, std::string_view data = {}) {
  return safetensors_bytes(header, data, header.size());
}

/// One entry of a safetensors header, every part as it is given.
inline std::string entry(const std::string& name, const std::string& dtype,
                         const std::string& shape, const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
         offsets + "}";
}

inline std::vector<std::byte> as_bytes(std::string_view text) {
  std::vector<std::byte> bytes(text.size());
  if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

/// The bytes of numbers, one after the other.
template <typename T>
std::string packed(const std::vector<T>& numbers) {
  std::string bytes(numbers.size() * sizeof(T), '\0');
  if (!bytes.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

/// The phrases that the error of `action` lacks, with the message; "" when it has them all.
template <typename Action>
std::string missing(const Action& action, const std::vector<std::string>& phrases) {
  std::string message, lacking;
  try {
    action();
    return "no error";
  } catch (const LayoutError& error) {
    message = error.what();
  }
  for (const std::string& phrase : phrases)
    if (message.find(phrase) == std::string::npos) lacking += "lacks \"" + phrase + "\"\n";
  return lacking.empty() ? "" : lacking + "message: " + message;
}

/// A config.json that is right: llama, hidden 4, 2 heads, 1 kv head.
inline const char* small_config =
    R"({"model_type": "llama", "hidden_size": 4, "num_attention_heads": 2,
        "num_key_value_heads": 1, "intermediate_size": 6, "num_hidden_layers": 11,
        "vocab_size": 8, "hidden_act": "silu", "max_position_embeddings": 16,
        "torch_dtype": "float32"})";

}  // namespace tpsim::test
