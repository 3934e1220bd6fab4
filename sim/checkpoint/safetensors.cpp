// SPDX-License-Identifier: MIT
// The safetensors format: header rules that join several tensors, and access to the numbers.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include <tpsim/checkpoint/safetensors.hpp>

#include "header_sax.hpp"
#include "mapped_file.hpp"
#include "nearest.hpp"
#include "problems.hpp"

namespace tpsim {
using namespace checkpoint_detail;

namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr Index length_bytes = 8;
constexpr Index max_header = 100'000'000;

Index header_length(std::span<const std::byte> file, const std::string& cannot) {
  const Index size = static_cast<Index>(file.size());
  if (size < length_bytes)
    throw LayoutError(cannot,
                      {{"file", fmt::format("the file has {} bytes; a safetensors file begins "
                                            "with 8 bytes of header length",
                                            size)}});
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  Problems problems;
  if (length > static_cast<std::uint64_t>(max_header))
    problems.add("header", fmt::format("header length {} is over {}", length, max_header));
  if (length > static_cast<std::uint64_t>(size - length_bytes))
    problems.add("header",
                 fmt::format("header length {} points past the end: the file has {} bytes after it",
                             length, size - length_bytes));
  problems.throw_if_any(cannot, "the file may be cut short, or be no safetensors file");
  return static_cast<Index>(length);
}

std::string_view header_text(std::span<const std::byte> file, Index length,
                             const std::string& cannot) {
  std::string_view text(reinterpret_cast<const char*>(file.data()) + length_bytes,
                        static_cast<std::size_t>(length));
  if (text.empty() || text.front() != '{')
    throw LayoutError(
        cannot, {{"header", text.empty() ? "the header is empty; it must begin with '{'"
                                         : "the header begins with " + shown(text.substr(0, 1)) +
                                               "; it must begin with '{'"}});
  text = text.substr(0, text.find_last_not_of(' ') + 1);
  // The JSON reader takes a zero byte for the end of its input.
  if (text.find('\0') != std::string_view::npos || text.back() != '}')
    throw LayoutError(cannot,
                      {{"header", "the header must be one JSON object, padded with spaces alone"}});
  return text;
}

/// Tensors, sorted by place, must cover the data without hole or overlap.
void check_cover(const std::vector<SafetensorsEntry>& entries, Index data_bytes,
                 Problems& problems) {
  std::vector<const SafetensorsEntry*> order;
  for (const SafetensorsEntry& e : entries) order.push_back(&e);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::tie(a->begin, a->end, a->name) < std::tie(b->begin, b->end, b->name);
  });
  Index covered = 0;
  const SafetensorsEntry* last = nullptr;
  for (const SafetensorsEntry* e : order) {
    if (e->begin < covered && last != nullptr)
      problems.add("offsets",
                   fmt::format("tensors {} and {} overlap: {} begins at byte {}, before {} ends "
                               "at {}",
                               shown(last->name), shown(e->name), shown(e->name), e->begin,
                               shown(last->name), covered));
    if (e->begin > covered)
      problems.add("offsets",
                   fmt::format("hole: bytes {} to {} of the data belong to no tensor; tensor {} "
                               "must begin at {}",
                               covered, e->begin, shown(e->name), covered));
    if (e->end > data_bytes)
      problems.add("offsets",
                   fmt::format("tensor {} ends at byte {}, but the file holds {} bytes of data: "
                               "it is cut short",
                               shown(e->name), e->end, data_bytes));
    if (e->end >= covered) covered = e->end, last = e;
  }
  if (covered < data_bytes)
    problems.add(
        "offsets",
        fmt::format("the file holds {} bytes of data, but the tensors end at byte {}{}", data_bytes,
                    covered, last == nullptr ? "" : " (" + shown(last->name) + ")"));
}

float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16U); }

float from_f16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (bits >> 10U) & 0x1FU;
  const std::uint32_t fraction = bits & 0x3FFU;
  if (exponent == 31)  // infinity, or a NaN with its payload
    return std::bit_cast<float>(sign | 0x7F800000U | fraction << 13U);
  if (exponent == 0) {  // zero and subnormals: fraction * 2^-24 is exact in f32
    const float size = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -size : size;
  }
  return std::bit_cast<float>(sign | (exponent + 112U) << 23U | fraction << 13U);
}

/// Elements of a tensor whose bytes `owner` keeps alive. The bytes need not be aligned.
class StoredValues final : public Values {
 public:
  StoredValues(std::shared_ptr<const void> owner, std::span<const std::byte> data, Shape shape,
               DType dtype)
      : owner_(std::move(owner)), data_(data), shape_(shape), dtype_(dtype) {}

  void read(Index row, Index col, std::span<float> out) const override { convert(row, col, out); }
  void read(Index row, Index col, std::span<double> out) const override { convert(row, col, out); }
  [[nodiscard]] DType dtype() const override { return dtype_; }
  [[nodiscard]] std::span<const std::byte> bytes(Index row, Index col) const override {
    return at(row, col, shape_.cols() - col);
  }

 private:
  [[nodiscard]] std::span<const std::byte> at(Index row, Index col, Index count) const {
    if (row < 0 || row >= shape_.rows() || col < 0 || count < 0 || count > shape_.cols() - col)
      throw LayoutError("a read outside a stored tensor",
                        {{"cover", fmt::format("row {}, columns {} to {} of {}", row, col,
                                               col + count, shape_.str())}});
    const Index size = bytes_of(dtype_);
    return data_.subspan(static_cast<std::size_t>((row * shape_.cols() + col) * size),
                         static_cast<std::size_t>(count * size));
  }

  template <typename Stored, typename Out, typename Convert>
  static void convert_each(std::span<const std::byte> from, std::span<Out> out, Convert value) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      Stored stored;
      std::memcpy(&stored, from.data() + i * sizeof stored, sizeof stored);
      out[i] = static_cast<Out>(value(stored));
    }
  }

  template <typename Out>
  void convert(Index row, Index col, std::span<Out> out) const {
    if (out.empty()) return;
    const std::span<const std::byte> from = at(row, col, static_cast<Index>(out.size()));
    switch (dtype_) {
      case DType::bf16:
        return convert_each<std::uint16_t>(from, out, from_bf16);
      case DType::f16:
        return convert_each<std::uint16_t>(from, out, from_f16);
      case DType::f64:
        return convert_each<double>(from, out, [](double v) { return v; });
      default:
        return convert_each<float>(from, out, [](float v) { return v; });
    }
  }

  std::shared_ptr<const void> owner_;
  std::span<const std::byte> data_;
  Shape shape_;
  DType dtype_;
};

std::optional<DType> weight_dtype(const std::string& dtype) {
  if (dtype == "F64") return DType::f64;
  if (dtype == "F32") return DType::f32;
  if (dtype == "F16") return DType::f16;
  if (dtype == "BF16") return DType::bf16;
  return std::nullopt;
}

}  // namespace

const SafetensorsEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto it = std::lower_bound(
      entries.begin(), entries.end(), name,
      [](const SafetensorsEntry& e, std::string_view wanted) { return e.name < wanted; });
  return it != entries.end() && it->name == name ? &*it : nullptr;
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           const std::string& file_name) {
  const std::string cannot = "cannot read " + shown(file_name);
  const Index length = header_length(file, cannot);
  const std::string_view text = header_text(file, length, cannot);

  Problems problems;
  HeaderSax sax(problems);
  nlohmann::json::sax_parse(text.begin(), text.end(), &sax);

  SafetensorsHeader header;
  header.data_begin = length_bytes + length;
  header.data_bytes = static_cast<Index>(file.size()) - header.data_begin;
  // With an entry missing for its own faults, holes would be reported that are none.
  if (problems.empty()) check_cover(sax.entries, header.data_bytes, problems);
  problems.throw_if_any(cannot);

  header.entries = std::move(sax.entries);
  header.metadata = std::move(sax.metadata);
  std::sort(header.entries.begin(), header.entries.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return header;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path) {
  const auto mapped = std::make_shared<const MappedFile>(path);
  bytes_ = mapped->bytes();
  owner_ = mapped;
  header_ = parse_safetensors_header(bytes_, path.string());
}

SafetensorsFile::SafetensorsFile(std::vector<std::byte> bytes, const std::string& file_name)
    : path_(file_name) {
  const auto held = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  bytes_ = *held;
  owner_ = held;
  header_ = parse_safetensors_header(bytes_, file_name);
}

const SafetensorsEntry& SafetensorsFile::require(std::string_view name) const {
  if (const SafetensorsEntry* entry = header_.find(name)) return *entry;
  std::vector<std::string> names;
  for (const SafetensorsEntry& e : header_.entries) names.push_back(e.name);
  const std::string near = nearest(name, names);
  throw LayoutError(shown(path_.string()) + " has no tensor " + shown(name), {},
                    near.empty() ? "" : "did you mean " + shown(near) + "?");
}

std::span<const std::byte> SafetensorsFile::raw(std::string_view name) const {
  const SafetensorsEntry& e = require(name);
  return bytes_.subspan(static_cast<std::size_t>(header_.data_begin + e.begin),
                        static_cast<std::size_t>(e.end - e.begin));
}

CheckpointTensor SafetensorsFile::tensor(std::string_view name) const {
  const SafetensorsEntry& e = require(name);
  const std::optional<DType> dtype = weight_dtype(e.dtype);
  Problems problems;
  if (!dtype)
    problems.add("dtype", fmt::format("tensor {} is {}; weights can be F64, F32, F16 or BF16",
                                      shown(name), e.dtype));
  if (e.dims.empty() || e.dims.size() > 2)
    problems.add("shape", fmt::format("tensor {} has {} dimensions; weights have 1 or 2",
                                      shown(name), e.dims.size()));
  problems.throw_if_any("cannot use tensor " + shown(name) + " of " + shown(path_.string()));
  const Shape shape = e.dims.size() == 1 ? Shape(e.dims[0]) : Shape(e.dims[0], e.dims[1]);
  return {e.name, shape, *dtype, path_,
          std::make_shared<const StoredValues>(owner_, raw(name), shape, *dtype)};
}

FullTensor full_tensor(const CheckpointTensor& tensor, const Logical& meaning) {
  if (meaning->shape != tensor.shape)
    throw LayoutError("tensor " + shown(tensor.name) + " cannot stand for " + meaning->name,
                      {{"names", fmt::format("it has shape {}, {} has {}", tensor.shape.str(),
                                             meaning->name, meaning->shape.str())}});
  auto stored = std::make_shared<StoredTensor>();
  stored->name = tensor.name;
  stored->shape = tensor.shape;
  stored->identity = {{0, tensor.shape.rows(), meaning, 0, 1}};
  stored->values = tensor.values;
  return FullTensor(std::move(stored));
}

}  // namespace tpsim
