// SPDX-License-Identifier: MIT
// Values as bytes, for another process of the same program on the same kind of machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tpsim {

using Bytes = std::vector<std::byte>;

/// Appends values to `bytes`.
class ByteWriter {
 public:
  template <class T>
    requires std::is_trivially_copyable_v<T>
  void put(const T& value) {
    append(&value, sizeof value);
  }
  template <class T>
    requires std::is_trivially_copyable_v<T>
  void put_all(std::span<const T> values) {
    put(static_cast<std::uint64_t>(values.size()));
    append(values.data(), values.size_bytes());
  }
  void put_text(std::string_view text) { put_all(std::span<const char>(text)); }

  Bytes bytes;

 private:
  void append(const void* from, std::size_t size) {
    const std::size_t at = bytes.size();
    bytes.resize(at + size);
    if (size > 0) std::memcpy(bytes.data() + at, from, size);
  }
};

/// Takes them back in the same order. @throws std::length_error where there are not enough
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] T get() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  /// Into `out`, of as many values as there are. @throws std::length_error otherwise
  template <class T>
    requires std::is_trivially_copyable_v<T>
  void get_all(std::span<T> out) {
    if (count<T>() != out.size()) short_of_bytes();
    if (const auto from = take(out.size_bytes()); !from.empty())
      std::memcpy(out.data(), from.data(), from.size());
  }
  /// Bytes that no length stands before.
  void get_raw(std::span<std::byte> out) {
    if (const auto from = take(out.size()); !from.empty())
      std::memcpy(out.data(), from.data(), from.size());
  }
  template <class T>
  [[nodiscard]] std::vector<T> get_vector() {
    std::vector<T> out(count<T>());
    if (const auto from = take(out.size() * sizeof(T)); !from.empty())
      std::memcpy(out.data(), from.data(), from.size());
    return out;
  }
  [[nodiscard]] std::string get_text() {
    const std::vector<char> text = get_vector<char>();
    return {text.begin(), text.end()};
  }
  [[nodiscard]] bool at_end() const { return rest_.empty(); }

 private:
  template <class T>
  [[nodiscard]] std::size_t count() {
    const auto n = get<std::uint64_t>();
    if (n > rest_.size() / sizeof(T)) short_of_bytes();
    return static_cast<std::size_t>(n);
  }
  std::span<const std::byte> take(std::size_t size) {
    if (size > rest_.size()) short_of_bytes();
    const auto out = rest_.first(size);
    rest_ = rest_.subspan(size);
    return out;
  }
  [[noreturn]] static void short_of_bytes() {
    throw std::length_error("a packed value has other bytes than its reader expects");
  }
  std::span<const std::byte> rest_;
};

}  // namespace tpsim
