// SPDX-License-Identifier: MIT
// The plainest tensor that a communicator can move: a matrix of doubles with a dtype to claim.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include <tpsim/comm/communicator.hpp>
#include <tpsim/core/bytes.hpp>

namespace tpsim::test {

struct Plain {
  Index rows = 0, cols = 0;
  std::vector<double> values;  // row-major
  DType type = DType::f64;

  Plain() = default;
  Plain(Index r, Index c, double fill = 0)
      : rows(r), cols(c), values(static_cast<std::size_t>(r * c), fill) {}
  double& at(Index r, Index c) { return values[static_cast<std::size_t>(r * cols + c)]; }
  [[nodiscard]] double at(Index r, Index c) const {
    return values[static_cast<std::size_t>(r * cols + c)];
  }
  friend bool operator==(const Plain&, const Plain&) = default;
};

class PlainOps : public TensorOps {
 public:
  [[nodiscard]] Shape shape(const void* t) const override { return {of(t).rows, of(t).cols}; }
  [[nodiscard]] DType dtype(const void* t) const override { return of(t).type; }
  void reduce(Reduction op, std::span<const void* const> in, void* out) const override {
    Plain sum = of(in.front());
    for (const void* t : in.subspan(1))
      for (std::size_t i = 0; i < sum.values.size(); ++i) {
        const double x = of(t).values.at(i);
        sum.values[i] = op == Reduction::sum ? sum.values[i] + x : std::max(sum.values[i], x);
      }
    to(out) = std::move(sum);
  }
  void concat(std::span<const void* const> in, int dim, void* out) const override {
    Plain all = of(in.front());
    for (const void* t : in.subspan(1)) all = join(all, of(t), dim);
    to(out) = std::move(all);
  }
  void slice(const void* in, int dim, Index start, Index length, void* out) const override {
    to(out) = cut(of(in), dim, start, length);
  }
  void assign(const void* in, void* out) const override { to(out) = of(in); }
  [[nodiscard]] Owned make_slice(const void* in, int dim, Index start,
                                 Index length) const override {
    return {new Plain(cut(of(in), dim, start, length)), [](void* p) { delete &to(p); }};
  }
  [[nodiscard]] bool leaves_process() const override { return true; }
  [[nodiscard]] Bytes pack(const void* t) const override {
    ByteWriter w;
    w.put(of(t).rows), w.put(of(t).cols), w.put(of(t).type);
    w.put_all(std::span<const double>(of(t).values));
    return std::move(w.bytes);
  }
  void unpack(std::span<const std::byte> bytes, void* out) const override { to(out) = made(bytes); }
  [[nodiscard]] Owned make_unpacked(std::span<const std::byte> bytes) const override {
    return {new Plain(made(bytes)), [](void* p) { delete &to(p); }};
  }
  Buffer operator()(Plain& t) const { return {this, &t}; }

  static Plain join(const Plain& a, const Plain& b, int dim) {
    Plain all = dim == 0 ? Plain(a.rows + b.rows, a.cols) : Plain(a.rows, a.cols + b.cols);
    all.type = a.type;
    for (Index r = 0; r < all.rows; ++r)
      for (Index c = 0; c < all.cols; ++c)
        all.at(r, c) = r < a.rows && c < a.cols ? a.at(r, c)
                       : dim == 0               ? b.at(r - a.rows, c)
                                                : b.at(r, c - a.cols);
    return all;
  }
  static Plain cut(const Plain& a, int dim, Index start, Index length) {
    Plain part = dim == 0 ? Plain(length, a.cols) : Plain(a.rows, length);
    part.type = a.type;
    for (Index r = 0; r < part.rows; ++r)
      for (Index c = 0; c < part.cols; ++c)
        part.at(r, c) = dim == 0 ? a.at(r + start, c) : a.at(r, c + start);
    return part;
  }

 private:
  static const Plain& of(const void* t) { return *static_cast<const Plain*>(t); }
  static Plain& to(void* t) { return *static_cast<Plain*>(t); }
  static Plain made(std::span<const std::byte> bytes) {
    ByteReader r(bytes);
    Plain x;
    x.rows = r.get<Index>(), x.cols = r.get<Index>(), x.type = r.get<DType>();
    x.values = r.get_vector<double>();
    return x;
  }
};

}  // namespace tpsim::test
