// SPDX-License-Identifier: MIT
// libFuzzer target: safetensors files and config.json from untrusted bytes.
// clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude
// tests/fuzz/safetensors_fuzz.cpp sim/checkpoint/*.cpp -lfmt
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <tpsim/checkpoint/bound_model.hpp>
#include <tpsim/checkpoint/moe_config.hpp>
#include <tpsim/checkpoint/safetensors.hpp>

namespace {

using tpsim::Index;

void require(bool law) {
  if (!law) std::abort();
}

// Fuzzers rarely find eight bytes that fit the rest, so the header length is also set for them.
std::vector<std::byte> with_length(std::string_view header_and_data) {
  const auto brace = header_and_data.rfind('}');
  const std::uint64_t length = brace == std::string_view::npos ? 0 : brace + 1;
  std::vector<std::byte> file(sizeof length + header_and_data.size());
  std::memcpy(file.data(), &length, sizeof length);
  if (!header_and_data.empty())
    std::memcpy(file.data() + sizeof length, header_and_data.data(), header_and_data.size());
  return file;
}

void read_all(const tpsim::CheckpointTensor& tensor) {
  std::vector<float> floats(static_cast<std::size_t>(tensor.shape.cols()));
  std::vector<double> doubles(floats.size());
  // An empty tensor may have any number of rows.
  for (Index row = 0; row < std::min<Index>(tensor.shape.rows(), 4096); ++row) {
    tensor.values->read(row, 0, std::span<float>(floats));
    tensor.values->read(row, 0, std::span<double>(doubles));
    require(static_cast<Index>(tensor.values->bytes(row, 0).size()) ==
            tensor.shape.cols() * tpsim::bytes_of(tensor.dtype));
  }
}

void check_file(std::vector<std::byte> bytes) {
  const Index size = static_cast<Index>(bytes.size());
  const tpsim::SafetensorsFile file(std::move(bytes), "fuzz");
  const tpsim::SafetensorsHeader& header = file.header();
  require(header.data_begin + header.data_bytes == size);
  Index covered = 0;
  for (const tpsim::SafetensorsEntry& entry : header.entries) {
    require(header.find(entry.name) == &entry);
    require(0 <= entry.begin && entry.begin <= entry.end && entry.end <= header.data_bytes);
    require(static_cast<Index>(file.raw(entry.name).size()) == entry.end - entry.begin);
    covered += entry.end - entry.begin;
    try {
      const tpsim::CheckpointTensor tensor = file.tensor(entry.name);
      if (tensor.shape.cols() <= size) read_all(tensor);
    } catch (const tpsim::LayoutError&) {  // no weight: a dtype or rank that is only stored
    }
  }
  require(covered == header.data_bytes);
}

template <typename Action>
void run(const Action& action) {
  try {
    action();
  } catch (const tpsim::LayoutError& error) {
    require(std::strlen(error.what()) < 40'000);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  run([&] { check_file(std::vector<std::byte>(bytes, bytes + size)); });
  run([&] { check_file(with_length(text)); });
  run([&] {
    const tpsim::BoundModel model = tpsim::bind_model(text, "config.json", tpsim::ConfigUse::sizes);
    const tpsim::QkvShape& q = model.shape.layers.front().attention.qkv;
    require(q.hidden > 0 && q.kv_heads > 0 && q.head_dim > 0 && q.heads % q.kv_heads == 0);
  });
  run([&] {
    const auto config = tpsim::parse_moe_config(text, "config.json");
    require(!config || config->num_attention_heads % config->num_key_value_heads == 0);
  });
  return 0;
}
