// SPDX-License-Identifier: MIT
// Parameters on the device: poison, shards on their way through staging, views with gaps.
#include <cmath>
#include <cstring>

#include <tpsim/layout/memory_values.hpp>

#include <tests/support/cuda_fixture.hpp>

namespace {

using namespace tpsim;
using namespace tpsim::test_cuda;
using test_eigen::full;
using test_eigen::load;
using test_eigen::Numbered;

std::vector<std::uint32_t> bits(CudaBackend& b, const DeviceParam& w) {
  std::vector<std::uint32_t> out;
  for (const float x : b.to_host(w)) out.push_back(cuda::bits_of(x));
  return out;
}
std::vector<std::uint32_t> bits(const eigen::Param& w) {
  std::vector<std::uint32_t> out;
  for (Index r = 0; r < w.shape.rows(); ++r)
    for (Index c = 0; c < w.shape.cols(); ++c)
      out.push_back(
          w.dtype == DType::f32
              ? static_cast<std::uint32_t>(w.bits(r, c))
              : cuda::bits_of(eigen::from_word(w.dtype, static_cast<std::uint16_t>(w.bits(r, c)))));
  return out;
}

TEST_CASE("cuda: memory that was never written is the rank's poison") {
  for (const DType rule : rules) {
    CudaBackend b(cuda::Device(), 3, rule), other(cuda::Device(), 4, rule);
    const EigenBackend<float> host(3, rule);
    const auto w = b.empty("w", Shape(3, 5));
    CHECK(bits(b, w) == bits(host.empty("w", Shape(3, 5))));
    CHECK(bits(b, w) != bits(other, other.empty("w", Shape(3, 5))));
    CHECK(std::isnan(b.to_host(w)[0]));
  }
}

TEST_CASE("cuda: copies fill the rectangle that the CPU's fill, from numbers and without") {
  for (const DType rule : rules) {
    const Shape whole(9, 7);
    for (const bool packed : {false, true})
      for (const bool numbers : {false, true}) {
        FullTensor t = numbers ? full("t", whole, std::make_shared<Numbered>(whole, packed))
                               : full("t", whole);
        Runs order;
        for (const Index r : {6, 1, 3, 5, 8}) order.append({r, 1, 1});
        t = t.rows(order);
        CudaBackend b(cuda::Device(), 0, rule);
        const EigenBackend<float> host(0, rule);
        auto rows = b.empty("w", Shape(4, 7));
        auto host_rows = host.empty("w", Shape(4, 7));
        b.copy(rows, 0, 1, t, 2, 3);
        host.copy(host_rows, 0, 1, t, 2, 3);
        CHECK(bits(b, rows) == bits(host_rows));
        auto cols = b.empty("w", Shape(5, 4));
        auto host_cols = host.empty("w", Shape(5, 4));
        b.copy(cols, 1, 1, t, 3, 2);
        host.copy(host_cols, 1, 1, t, 3, 2);
        CHECK(bits(b, cols) == bits(host_cols));
        b.fill_zeros(cols, 1, 2);
        host.fill_zeros(host_cols, 1, 2);
        CHECK(bits(b, cols) == bits(host_cols));
        CHECK_THROWS_AS(b.copy(cols, 1, 3, t, 0, 2), LayoutError);
      }
  }
}

TEST_CASE("cuda: a tensor that no staging buffer holds arrives whole") {
  const Index wide = cuda::Device::staging_bytes / 2 + 37;  // a row of it is several buffers in f32
  for (const DType rule : {DType::f32, DType::bf16}) {
    CudaBackend b(cuda::Device(), 0, rule);
    const EigenBackend<float> host(0, rule);
    for (const Shape s : {Shape(3, wide), Shape(wide, 3)}) {
      const FullTensor t = full("t", s);
      auto w = b.empty("w", s);
      b.copy(w, 0, 0, t, 0, s.rows());
      const auto all = b.to_host(w);
      const auto expected = load(host, t);
      Index wrong = 0;
      const auto read = eigen::weight_rows<float>(expected);
      std::vector<float> scratch(256);
      for (Index r = 0; r<s.rows(); r += s.rows()> 3 ? 9973 : 1)
        for (Index c = 0; c < s.cols(); c += 256) {
          const Index n = std::min<Index>(256, s.cols() - c);
          const float* row = read(r, c, n, scratch.data());
          wrong += std::memcmp(row, all.data() + r * s.cols() + c,
                               static_cast<std::size_t>(n) * sizeof(float)) != 0;
        }
      CHECK(wrong == 0);
    }
  }
}

/// A matrix in the middle of a larger one.
struct Inner {
  Inner(cuda::Device& d, cuda::Type type, Index rows, Index cols)
      : whole(d, Shape(rows + 3, cols + 5), type) {
    d.fill(whole.view(), 0x3f803f80U);
  }
  [[nodiscard]] cuda::Matrix view() const {
    return cuda::part_of(whole.view(), 1, whole.shape().rows() - 3, 2, whole.shape().cols() - 5);
  }
  /// How many elements outside the view are no longer what they were.
  [[nodiscard]] Index spoiled(cuda::Device& d) const {
    const auto all = detail::fetch_numbers(d, whole.view());
    const float first = all[0];
    Index count = 0;
    for (Index r = 0; r < whole.shape().rows(); ++r)
      for (Index c = 0; c < whole.shape().cols(); ++c) {
        const bool inside =
            r >= 1 && r < whole.shape().rows() - 2 && c >= 2 && c < whole.shape().cols() - 3;
        const float x = all[static_cast<std::size_t>(r * whole.shape().cols() + c)];
        if (!inside && cuda::bits_of(x) != cuda::bits_of(first)) ++count;
      }
    return count;
  }
  DeviceTensor whole;
};

TEST_CASE("cuda: every operation keeps to its part of a matrix with gaps") {
  using cuda::Matrix, cuda::Type;
  for (const cuda::Size lanes : lane_counts)
    for (const DType rule : rules) {
      const WithLanes with(lanes);
      INFO(name(rule) << ", " << lanes << " lanes");
      cuda::Device d;
      const Type type = device_type(rule);
      const Index rows = 5, cols = 12;
      CudaBackend b(d, 0, rule);
      std::vector<float> numbers(static_cast<std::size_t>(rows * cols));
      for (std::size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = static_cast<float>(i * 131 % 61) / 16 - 2;
      const auto flat = b.from_host({rows, cols}, numbers);
      const auto flat2 = b.from_host({rows, cols}, numbers, true);
      Inner x(d, type, rows, cols), x2(d, Type::f32, rows, cols);
      d.copy(flat.view(), x.view());
      d.copy(flat2.view(), x2.view());
      CHECK(detail::fetch_numbers(d, x.view()) == b.to_host(flat));
      const std::vector<double> turns(static_cast<std::size_t>(rows * 3 * 2), 0.6);
      const auto table = d.array(turns.data(), rows * 6 * 8);
      const std::vector<std::uint8_t> flags{1, 0, 1, 1, 0};
      const auto keep = d.array(flags.data(), rows);
      const std::vector<Index> picked{4, 0, 2, 2, 1};
      const auto list = d.array(picked.data(), rows * 8);
      struct Op {
        const char* what;
        Index cols;
        std::function<void(cuda::ConstMatrix, cuda::ConstMatrix, Matrix)> run;
      };
      const std::vector<Op> ops{
          {"fill", cols, [&](auto, auto, Matrix out) { d.fill(out, 0x40004000U); }},
          {"copy", cols, [&](auto a, auto, Matrix out) { d.copy(a, out); }},
          {"add", cols, [&](auto a, auto a2, Matrix out) { d.add(a, a2, out); }},
          {"mul", cols, [&](auto a, auto a2, Matrix out) { d.mul(a, a2, out); }},
          {"add_bias", cols,
           [&](auto a, auto a2, Matrix out) {
             d.add_bias(a, cuda::part_of(a2, 1, 1, 0, cols), out);
           }},
          {"mul_columns", cols,
           [&](auto a, auto a2, Matrix out) {
             d.mul_columns(a, cuda::part_of(a2, 1, 1, 0, 6), out);
           }},
          {"times", cols, [&](auto a, auto, Matrix out) { d.times(a, 1.7, out); }},
          {"keep", cols,
           [&](auto a, auto, Matrix out) {
             d.keep_tokens(a, static_cast<const std::uint8_t*>(keep.get()), out);
           }},
          {"lookup", cols,
           [&](auto a, auto, Matrix out) {
             d.lookup(a, static_cast<const Index*>(list.get()), out);
           }},
          {"silu", cols,
           [&](auto a, auto, Matrix out) { d.activate(cuda::Activation::silu, a, out); }},
          {"sums", 3, [&](auto a, auto, Matrix out) { d.row_sums(a, true, out); }},
          {"centered", cols,
           [&](auto a, auto a2, Matrix out) {
             d.centered(a, cuda::part_of(a2, 0, rows, 1, 2), 6, out);
           }},
          {"rms", cols,
           [&](auto a, auto a2, Matrix out) {
             d.rms_normalized(a, cuda::part_of(a2, 0, rows, 11, 1), 12, 9, out);
           }},
          {"rope", cols,
           [&](auto a, auto, Matrix out) {
             d.rope(a, static_cast<const double*>(table.get()), 12, 3, false, out);
           }},
          {"softmax", cols,
           [&](auto, auto a2, Matrix out) {
             d.softmax(a2, {5, 7, 3, 0.5, nullptr, {}}, out);
           }},
          {"largest", 2, [&](auto a, auto, Matrix out) { d.largest(a, 3, 99, out); }},
          {"best_of", 1, [&](auto a, auto, Matrix out) { d.best_of(a, 99, out); }},
          {"product", rows,
           [&](auto a, auto, Matrix out) {
             cuda::Product p;
             p.a = p.b = a, p.y = out;
             d.product(p);
           }},
          {"product with values", cols,
           [&](auto a, auto, Matrix out) {
             cuda::Product p;
             p.a = cuda::part_of(a, 0, rows, 0, rows), p.b = a, p.y = out, p.transposed = false;
             d.product(p);
           }},
      };
      for (const Op& op : ops)
        for (const Type to : {type, Type::f32}) {
          INFO(op.what);
          Inner out(d, to, rows, op.cols);
          DeviceTensor plain(d, Shape(rows, op.cols), to);
          op.run(x.view(), x2.view(), out.view());
          op.run(flat.view(), flat2.view(), plain.view());
          CHECK(out.spoiled(d) == 0);
          const auto have = detail::fetch_numbers(d, out.view());
          const auto wanted = detail::fetch_numbers(d, plain.view());
          CHECK(std::memcmp(have.data(), wanted.data(), have.size() * sizeof(float)) == 0);
        }
    }
}

TEST_CASE("cuda: all memory goes back") {
  const cuda::Size before = cuda::HostDevice::instance().live;
  {
    BoundedCudaBackend b(0, DType::bf16, tracked(), cuda::Device());
    auto x = b.activation("x", {3, 8});
    const auto y = b.add(b.silu(x), x);
    x = y;
    CHECK(cuda::HostDevice::instance().live > before);
  }
  CHECK(cuda::HostDevice::instance().live == before);
}

}  // namespace
