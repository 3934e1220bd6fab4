// SPDX-License-Identifier: MIT
// What the device probe needs and no library: integer tensors, their product, ranks by hand.
#pragma once

#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <tpsim/comm/communicator.hpp>
#include <tpsim/layout/full_tensor.hpp>

namespace tpsim::testing {

inline int failures = 0;

inline void expect(bool holds, const std::string& sentence) {
  if (holds) return;
  ++failures;
  std::printf("FAIL  %s\n", sentence.c_str());
}
// Bits, so that poison (a NaN) is seen and +0 differs from -0; nothing compared is a failure.
inline void expect_bits(const std::vector<float>& got, const std::vector<float>& want,
                        const std::string& sentence) {
  expect(!want.empty() && got.size() == want.size() &&
             std::memcmp(got.data(), want.data(), want.size() * sizeof(float)) == 0,
         sentence);
}
inline void expect_refused(const std::function<void()>& call, const std::string& sentence) {
  try {
    call();
  } catch (const LayoutError&) {
    return;
  }
  expect(false, sentence);
}

// One of 1, 2, 3, or their negatives when `sign` says so: never zero, so no product is lost.
[[nodiscard]] inline float integer(std::uint64_t key, Index row, Index col, bool sign) {
  const std::uint64_t bits = random_bits(row_key(key, row), col);
  const float size = static_cast<float>(1 + bits % 3);
  return sign && (bits & 8U) != 0 ? -size : size;
}

class IntegerValues final : public Values {
 public:
  IntegerValues(std::uint64_t key, bool sign) : key_(key), sign_(sign) {}
  void read(Index row, Index col, std::span<float> out) const override { fill(row, col, out); }
  void read(Index row, Index col, std::span<double> out) const override { fill(row, col, out); }
  [[nodiscard]] DType dtype() const override { return DType::f32; }

 private:
  template <class T>
  void fill(Index row, Index col, std::span<T> out) const {
    for (T& value : out) value = integer(key_, row, col++, sign_);
  }
  std::uint64_t key_;
  bool sign_;
};

[[nodiscard]] inline FullTensor tensor(const std::string& name, Shape shape, bool sign = true) {
  const auto logical = std::make_shared<LogicalTensor>(name, shape);
  return FullTensor(std::make_shared<StoredTensor>(
      StoredTensor{name,
                   shape,
                   {{0, shape.rows(), logical, 0, 1}},
                   std::make_shared<IntegerValues>(logical->key, sign)}));
}
[[nodiscard]] inline std::vector<float> numbers(
    const FullTensor& full) {  // row by row, in the view's order
  std::vector<float> out;
  for (const Run& run : full.stored_rows())
    for (Index i = 0; i < run.length; ++i)
      for (Index col = 0; col < full.shape().cols(); ++col) {
        float value = 0;
        full.stored().values->read(run.at(i), col, std::span<float>(&value, 1));
        out.push_back(value);
      }
  return out;
}
// x [tokens, in] * w [out, in]^T + bias [out], in double.
[[nodiscard]] inline std::vector<float> product(const std::vector<float>& x, const FullTensor& w,
                                                const std::vector<float>& bias) {
  const std::vector<float> weight = numbers(w);
  const auto in = static_cast<std::size_t>(w.shape().cols());
  std::vector<float> y;
  for (std::size_t t = 0; t < x.size() / in; ++t)
    for (std::size_t o = 0; o < weight.size() / in; ++o) {
      double sum = bias.empty() ? 0 : static_cast<double>(bias[o]);
      for (std::size_t i = 0; i < in; ++i)
        sum += static_cast<double>(x[t * in + i]) * static_cast<double>(weight[o * in + i]);
      y.push_back(static_cast<float>(sum));
    }
  return y;
}

// One rank whose peers are driven by hand: all_reduce leaves the partial sum for the caller to add.
class HandRank final : public Communicator {
 public:
  HandRank(int rank, int size) : rank_(rank), size_(size) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string_view group() const override { return "by hand"; }
  [[nodiscard]] std::unique_ptr<Communicator> split(int, int, Site) override { return nullptr; }
  int reductions = 0;

 private:
  void run(const Call& call) override {
    if (call.op != CollectiveOp::all_reduce) throw LayoutError("only all_reduce is driven by hand");
    ++reductions;
    call.in.ops->assign(call.in.tensor, call.out.tensor);
  }
  int rank_, size_;
};

}  // namespace tpsim::testing
