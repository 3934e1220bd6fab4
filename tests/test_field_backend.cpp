// SPDX-License-Identifier: MIT
// The exact backend: products, generated weights, copies and poison.
#include <rapidcheck.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include <tests/support/catch.hpp>
#include <tpsim/backend/field/field_backend.hpp>

namespace tpsim::field_backend_tests {
namespace {

using gf61::Element, gf61::p, gf61::Wide;
using Elements = std::vector<Element>;

static_assert(Backend<FieldBackend>);

template <class Oracle = SipOracle>
BasicFieldBackend<Oracle> backend(int tp_rank = 0, std::uint64_t seed = 11) {
  return {std::make_shared<FieldContext>(FieldContext{seed}), tp_rank};
}

/// A tensor that lies on disk in canonical order.
FullTensor canonical(const std::string& name, Shape shape) {
  const auto logical = std::make_shared<LogicalTensor>(name, shape);
  return FullTensor(std::make_shared<StoredTensor>(
      StoredTensor{name, shape, {{0, shape.rows(), logical, 0, 1}}, nullptr}));
}

FieldParam load(FieldBackend& b, const FullTensor& full) {
  FieldParam param = b.empty("weight", full.shape());
  b.copy(param, 0, 0, full, 0, full.shape().rows());
  return param;
}

Element weight(const std::string& name, Index row, Index col, std::uint64_t seed = 11) {
  return field_weight(seed, LogicalTensor(name, Shape(1, 1)), row, col);
}

/// The dot product by the remainder of every single product.
Element naive_dot(const Elements& a, const Elements& b) {
  Wide sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum = (sum + static_cast<Wide>(a[i]) * b[i] % p) % p;
  return static_cast<Element>(sum);
}

TEST_CASE("kernel: dot products of any length and width equal the naive reduction") {
  for (const bool largest : {true, false})
    for (const Index n : {1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1000, 4099})
      for (const Index tokens : {1, 2, 3, 4, 5, 9}) {
        const auto size = static_cast<std::size_t>(n);
        Elements w(size, p - 1), x(size * static_cast<std::size_t>(tokens), p - 1);
        if (!largest) {
          for (std::size_t i = 0; i < w.size(); ++i) w[i] = gf61::reduce(mix(i + 1));
          for (std::size_t i = 0; i < x.size(); ++i) x[i] = gf61::reduce(mix(i + 1000003));
        }
        for (const bool ifma : {false, gf61::has_ifma()}) {
          const Elements y =
              gf61::linear(gf61::PackedTokens(x, tokens, n, ifma), 1,
                           [&](Index, Index col, Index, Element*) { return w.data() + col; });
          for (Index t = 0; t < tokens; ++t) {
            const auto row = x.begin() + t * n;
            REQUIRE(y[static_cast<std::size_t>(t)] == naive_dot(w, Elements(row, row + n)));
          }
        }
      }
}

TEST_CASE("field: sharded products equal the whole and the naive product") {
  REQUIRE(rc::check([] {
    const Index in = *rc::gen::inRange<Index>(1, 700), out = *rc::gen::inRange<Index>(1, 20);
    const Index tokens = *rc::gen::inRange<Index>(1, 7);
    const int tp = *rc::gen::inRange(1, 5);
    FieldBackend b = backend();
    const FullTensor full = canonical("w", Shape(out, in));
    const FieldTensor x = b.input("x", tokens, in);
    const FieldTensor whole = b.linear(x, load(b, full));
    for (Index t = 0; t < tokens; ++t)
      for (Index o = 0; o < out; ++o) {
        Element sum = 0;
        for (Index i = 0; i < in; ++i)
          sum = gf61::add(sum, gf61::mul(x.at(t, i), weight("w", o, i)));
        RC_ASSERT(whole.at(t, o) == sum);
      }
    for (const int dim : {0, 1}) {  // columns of y concatenated; partial products summed
      std::vector<FieldTensor> parts;
      const Index extent = full.shape().dim(dim);
      Index begin = 0;
      for (int r = 0; r < tp; ++r) {
        const Index end = r + 1 == tp ? extent : *rc::gen::inRange<Index>(begin, extent + 1);
        FieldBackend rank = backend(r);
        FieldParam shard = rank.empty("weight", full.shape().with(dim, end - begin));
        rank.copy(shard, dim, 0, full, begin, end - begin);
        parts.push_back(rank.linear(dim == 0 ? x : rank.slice(x, 1, begin, end - begin), shard));
        begin = end;
      }
      std::vector<const FieldTensor*> all;
      for (const FieldTensor& part : parts) all.push_back(&part);
      RC_ASSERT((dim == 0 ? b.concat(all, 1) : b.reduce(Reduction::sum, all)) == whole);
    }
  }));
}

TEST_CASE("field: a later copy wins and the rest stays as it was") {
  REQUIRE(rc::check([] {
    const Index rows = *rc::gen::inRange<Index>(1, 12), cols = *rc::gen::inRange<Index>(1, 12);
    FieldBackend b = backend();
    FieldParam param = b.empty("weight", Shape(rows, cols));
    if (*rc::gen::arbitrary<bool>())
      param = b.stored(param.shape, Elements(static_cast<std::size_t>(rows * cols), 5));
    FieldTensor expected = b.read(param);
    const int copies = *rc::gen::inRange(0, 8);
    for (int i = 0; i < copies; ++i) {
      const std::string name = "t" + std::to_string(i);
      const int dim = *rc::gen::inRange(0, 2);
      const Index extent = param.shape.dim(dim), start = *rc::gen::inRange<Index>(0, 4);
      const Index offset = *rc::gen::inRange<Index>(0, extent + 1);
      const Index length = *rc::gen::inRange<Index>(0, extent - offset + 1);
      const Index stride = *rc::gen::inRange<Index>(1, 4);  // a view of every stride-th row
      const Shape view = param.shape.with(dim, start + length);
      Runs rows_seen;
      rows_seen.append({0, view.rows(), stride});
      b.copy(param, dim, offset,
             canonical(name, view.with(0, view.rows() * stride)).rows(rows_seen), start, length);
      for (Index r = 0; r < rows; ++r)
        for (Index c = 0; c < cols; ++c) {
          const Index along = (dim == 0 ? r : c) - offset;
          if (along < 0 || along >= length) continue;
          expected.row(r)[c] = dim == 0 ? weight(name, stride * (start + along), c)
                                        : weight(name, stride * r, start + along);
        }
    }
    RC_ASSERT(b.read(param) == expected);
    const FieldTensor x = b.input("x", 2, cols);
    FieldBackend again = backend();
    RC_ASSERT(b.linear(x, param) == again.linear(x, again.stored(param.shape, expected.values)));
  }));
}

TEST_CASE("field: copies outside a parameter are refused") {
  FieldBackend b = backend();
  FieldParam param = b.empty("weight", Shape(4, 6));
  const FullTensor full = canonical("w", Shape(8, 6));
  CHECK_THROWS_AS(b.copy(param, 0, 1, full, 0, 4), LayoutError);
  CHECK_THROWS_AS(b.copy(param, 0, 0, full, 5, 4), LayoutError);
  CHECK_THROWS_AS(b.copy(param, 1, 0, full, 0, 6), LayoutError);
  CHECK_THROWS_AS(b.linear(b.input("x", 1, 5), param), LayoutError);
  CHECK_THROWS_AS(b.slice(b.input("x", 1, 5), 1, 2, 4), LayoutError);
}

TEST_CASE("field: poison differs between ranks and parameters and is never zero") {
  FieldBackend b0 = backend(0), b1 = backend(1);
  std::vector<Elements> all;
  for (FieldBackend* b : {&b0, &b1})
    for (int i = 0; i < 2; ++i) all.push_back(b->read(b->empty("weight", Shape(30, 40))).values);
  std::vector<Element> joined;
  for (const Elements& one : all) joined.insert(joined.end(), one.begin(), one.end());
  std::sort(joined.begin(), joined.end());
  CHECK(joined.front() != 0U);
  CHECK(std::adjacent_find(joined.begin(), joined.end()) == joined.end());
  FieldBackend same = backend(1);
  CHECK(same.read(same.empty("another name", Shape(30, 40))).values == all[2]);
}

TEST_CASE("field: two disk orders of the same tensors give the same parameters") {
  constexpr Index i = 12, cols = 9;
  const auto gate = std::make_shared<LogicalTensor>("gate", Shape(i, cols));
  const auto up = std::make_shared<LogicalTensor>("up", Shape(i, cols));
  StoredTensor blocked{"blocked", Shape(2 * i, cols), {{0, i, gate, 0, 1}, {i, i, up, 0, 1}}, {}};
  StoredTensor mixed{"interleaved", Shape(2 * i, cols), {}, {}};
  for (Index r = 0; r < i; ++r) {
    mixed.identity.push_back({2 * r, 1, gate, r, 1});
    mixed.identity.push_back({2 * r + 1, 1, up, r, 1});
  }
  const FullTensor a(std::make_shared<StoredTensor>(blocked));
  const FullTensor c(std::make_shared<StoredTensor>(mixed));
  FieldBackend b = backend();
  for (int rank = 0; rank < 3; ++rank) {
    std::vector<FieldTensor> read;
    for (const FullTensor* disk : {&a, &c})
      for (Index part = 0; part < 2; ++part) {
        Runs rows = Runs::range(part * i, part * i + i);
        if (disk == &c) rows = Runs(), rows.append({part, i, 2});
        FieldParam param = b.empty("weight", Shape(i / 3, cols));
        b.copy(param, 0, 0, disk->rows(rows), rank * (i / 3), i / 3);
        read.push_back(b.read(param));
      }
    CHECK(read[0] == read[2]);
    CHECK(read[1] == read[3]);
    CHECK(read[0].at(1, 2) == weight("gate", rank * (i / 3) + 1, 2));
    CHECK(read[1].at(1, 2) == weight("up", rank * (i / 3) + 1, 2));
  }
}

#ifdef _OPENMP
TEST_CASE("field: the product does not depend on the number of threads") {
  FieldBackend b = backend();
  const FieldParam w = load(b, canonical("w", Shape(203, 517)));
  const FieldTensor x = b.input("x", 6, 517);
  REQUIRE(6 * 203 * 517 >= gf61::parallel_macs);
  const int before = omp_get_max_threads();
  std::vector<FieldTensor> y;
  for (const int threads : {1, 2, 5}) {
    omp_set_num_threads(threads);
    y.push_back(b.linear(x, w));
  }
  omp_set_num_threads(before);
  CHECK(y[0] == y[1]);
  CHECK(y[0] == y[2]);
}
#endif
}  // namespace
}  // namespace tpsim::field_backend_tests
