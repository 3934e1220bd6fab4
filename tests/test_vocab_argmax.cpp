// SPDX-License-Identifier: MIT
// The choice of the greatest logit without a gather of logits: ties, padding, empty ranks, exact
// ids, and what is wrong when a rank chooses alone, under other ids, or among the padding.
#include <cmath>
#include <limits>

#include <rapidcheck.h>

#include <tests/support/catch.hpp>
#include <tests/support/symbolic_fixture.hpp>
#include <tests/support/verify_fixture.hpp>

#include <tpsim/layout/memory_values.hpp>

namespace vocab_argmax_tests {
namespace {

using namespace tpsim;
using namespace tpsim::testing;

LayerSpec head(int tp, Index vocab, const std::string& cut) {
  LayerSpec s;
  s.layer = "lm_head";
  s.tp = tp;
  s.tokens = 7;
  s.vocab = vocab;
  s.vocab_cut = cut;
  s.qkv.hidden = 6;
  s.argmax = true;
  return s;
}

/// Row r of the weight is row_values[r] everywhere.
void set_rows(LayerSpec& s, const std::vector<float>& row_values) {
  std::vector<float> numbers;
  for (const float v : row_values)
    numbers.insert(numbers.end(), static_cast<std::size_t>(s.qkv.hidden), v);
  s.values["lm_head.weight"] = std::make_shared<MemoryValues>(
      Shape(static_cast<Index>(row_values.size()), s.qkv.hidden), numbers);
}

/// [rank][token]: what the ranks return of an input of ones.
std::vector<std::vector<double>> choices(const Subject& subject, DType rule = DType::f32) {
  using B = Subject::Numeric;
  const auto runs = run_ranks<B>(
      subject, subject.tensors, [&](int rank) { return std::make_unique<B>(rank, rule); },
      [&](B& b) {
        return b.input(
            eigen::Matrix<float>(eigen::Matrix<float>::Ones(subject.tokens, subject.input_width)));
      },
      [](std::size_t, B&, ModuleOn<B>&) {});
  std::vector<std::vector<double>> out;
  for (const auto& y : runs.outputs) {
    out.emplace_back();
    for (Index t = 0; t < y->value.rows(); ++t) {
      CHECK(y->value.cols() == 1);
      out.back().push_back(static_cast<double>(y->value(t, 0)));
    }
  }
  return out;
}
std::vector<std::vector<double>> all_choose(int tp, Index tokens, double id) {
  return std::vector<std::vector<double>>(
      static_cast<std::size_t>(tp), std::vector<double>(static_cast<std::size_t>(tokens), id));
}

eigen::Matrix<float> matrix(const std::vector<std::vector<float>>& rows) {
  eigen::Matrix<float> m(static_cast<Index>(rows.size()), static_cast<Index>(rows[0].size()));
  for (Index t = 0; t < m.rows(); ++t)
    for (Index c = 0; c < m.cols(); ++c)
      m(t, c) = rows[static_cast<std::size_t>(t)][static_cast<std::size_t>(c)];
  return m;
}
FieldTensor field_tensor(const std::vector<std::vector<gf61::Element>>& rows) {
  FieldTensor x(static_cast<Index>(rows.size()), static_cast<Index>(rows[0].size()));
  for (Index t = 0; t < x.tokens; ++t)
    std::copy(rows[static_cast<std::size_t>(t)].begin(), rows[static_cast<std::size_t>(t)].end(),
              x.row(t));
  return x;
}
/// The first of the greatest, by `less`.
template <class T, class Less>
Index first_greatest(const std::vector<T>& row, Less less) {
  std::size_t best = 0;
  for (std::size_t c = 1; c < row.size(); ++c)
    if (less(row[best], row[c])) best = c;
  return static_cast<Index>(best);
}
/// Widths of parts that make `n` columns together, some of them empty.
std::vector<Index> some_parts(Index n) {
  std::vector<Index> widths;
  for (Index left = n, part = *rc::gen::inRange<Index>(0, 6); part >= 0; --part) {
    widths.push_back(part == 0 ? left : *rc::gen::inRange<Index>(0, left + 1));
    left -= widths.back();
  }
  return widths;
}
/// A choice in parts, as ranks make it.
template <class B>
typename B::Tensor choose_in_parts(B& b, const typename B::Tensor& x,
                                   const std::vector<Index>& widths, Index first_id) {
  std::vector<typename B::Tensor> pairs;
  Index begin = 0;
  for (const Index width : widths) {
    pairs.push_back(b.largest(b.slice(x, 1, begin, width), first_id + begin));
    begin += width;
  }
  std::vector<const typename B::Tensor*> pointers;
  for (const auto& p : pairs) pointers.push_back(&p);
  return b.best_of(b.concat(pointers, 1));
}

Finding finding_of(const Report& report, const std::string& id) {
  INFO(id);
  REQUIRE(check(report, id).findings.size() >= 1);
  return check(report, id).findings[0];
}

}  // namespace

TEST_CASE("argmax: in the numbers, in any parts, the first of the greatest; a NaN is greater") {
  constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const std::vector<float> few{-infinity, -2, -0.0F, 0, 1, 257, infinity, nan};
  Index ties = 0, nans = 0;
  REQUIRE(rc::check([&] {
    const Index tokens = *rc::gen::inRange<Index>(1, 4), n = *rc::gen::inRange<Index>(1, 12);
    const Index first = *rc::gen::element<Index>(0, 26, 100000);
    const std::size_t kinds = *rc::gen::element<std::size_t>(2, 5, 8);
    std::vector<std::vector<float>> rows;
    for (Index t = 0; t < tokens; ++t) {
      rows.emplace_back();
      for (Index c = 0; c < n; ++c)
        rows.back().push_back(few[*rc::gen::inRange<std::size_t>(0, kinds)]);
    }
    const DType rule = *rc::gen::element(DType::f32, DType::bf16, DType::f16);
    EigenBackend<float> b(0, rule);
    const auto x = b.input(matrix(rows));
    const auto whole = b.best_of(b.largest(x, first));
    const auto parts = choose_in_parts(b, x, some_parts(n), first);
    RC_ASSERT(b.shape(parts) == Shape(tokens, 1));
    for (Index t = 0; t < tokens; ++t) {
      const auto& row = rows[static_cast<std::size_t>(t)];
      const Index wanted = first + first_greatest(row, [](float a, float c) {
                             return std::isnan(c) ? !std::isnan(a) : a < c;
                           });
      RC_ASSERT(static_cast<Index>(whole.value(t, 0)) == wanted);
      RC_ASSERT(static_cast<Index>(parts.value(t, 0)) == wanted);
      const float value = row[static_cast<std::size_t>(wanted - first)];
      ties += std::count(row.begin(), row.end(), value) > 1 ? 1 : 0;
      nans += std::isnan(value) ? 1 : 0;
    }
  }));
  CHECK(ties > 0);
  CHECK(nans > 0);
}

TEST_CASE("argmax: in the field, in any parts, the first of the greatest; 0 is the greatest") {
  const auto order = [](gf61::Element a, gf61::Element c) {
    return (a + gf61::p - 1) % gf61::p < (c + gf61::p - 1) % gf61::p;
  };
  const std::vector<gf61::Element> few{1, 2, 3, gf61::p - 1, 0};
  FieldBackend b(std::make_shared<FieldContext>(FieldContext{7}), 0);
  REQUIRE(rc::check([&] {
    const Index tokens = *rc::gen::inRange<Index>(1, 4), n = *rc::gen::inRange<Index>(1, 12);
    const Index first = *rc::gen::element<Index>(0, 26, 100000);
    const std::size_t kinds = *rc::gen::element<std::size_t>(1, 3, 5);
    std::vector<std::vector<gf61::Element>> rows;
    for (Index t = 0; t < tokens; ++t) {
      rows.emplace_back();
      for (Index c = 0; c < n; ++c)
        rows.back().push_back(few[*rc::gen::inRange<std::size_t>(0, kinds)]);
    }
    const FieldTensor x = field_tensor(rows);
    const FieldTensor pair = b.largest(x, first);
    const FieldTensor parts = choose_in_parts(b, x, some_parts(n), first);
    for (Index t = 0; t < tokens; ++t) {
      const auto& row = rows[static_cast<std::size_t>(t)];
      const Index wanted = first_greatest(row, order);
      RC_ASSERT(pair.at(t, 0) == row[static_cast<std::size_t>(wanted)]);
      RC_ASSERT(pair.at(t, 1) == static_cast<gf61::Element>(first + wanted));
      RC_ASSERT(parts.at(t, 0) == static_cast<gf61::Element>(first + wanted));
    }
  }));
  CHECK(b.counters().comparisons > 0);
}

TEST_CASE("argmax: bounds hold for whatever the exact numbers are") {
  EigenOptions options;
  options.track_bounds = true;
  EigenBackend<float> b(0, DType::f32, options);
  EigenBackend<double> exact;
  Index moved = 0, certain = 0;
  REQUIRE(rc::check([&] {
    const Index n = *rc::gen::inRange<Index>(1, 10);
    eigen::Tensor<float> x = b.input(eigen::Matrix<float>(1, n));
    eigen::Tensor<double> y = exact.input(eigen::Matrix<double>(1, n));
    x.bound.setZero(1, n);
    for (Index c = 0; c < n; ++c) {
      x.value(0, c) = static_cast<float>(*rc::gen::inRange(-8, 8));
      x.bound(0, c) = *rc::gen::inRange(0, 5) / 2.0;
      y.value(0, c) =
          static_cast<double>(x.value(0, c)) + x.bound(0, c) * (*rc::gen::inRange(-4, 5) / 4.0);
    }
    const auto pair = b.largest(x, 10);
    const auto wanted_pair = exact.largest(y, 10);
    RC_ASSERT(std::abs(static_cast<double>(pair.value(0, 0)) - wanted_pair.value(0, 0)) <=
              pair.bound_at(0, 0));
    const auto id = choose_in_parts(b, x, some_parts(n), 10);
    const double wanted = exact.best_of(wanted_pair).value(0, 0);
    RC_ASSERT(std::abs(static_cast<double>(id.value(0, 0)) - wanted) <= id.bound_at(0, 0));
    moved += static_cast<double>(id.value(0, 0)) != wanted ? 1 : 0;
    certain += id.bound_at(0, 0) == 0 ? 1 : 0;
  }));
  CHECK(moved > 0);
  CHECK(certain > 0);
  // Of an infinite logit nothing is known, and an empty part changes nothing.
  eigen::Tensor<float> x = b.input(matrix({{1, std::numeric_limits<float>::infinity()}}));
  CHECK(std::isinf(b.largest(x, 0).bound_at(0, 1)));
  CHECK(b.best_of(b.largest(b.input(matrix({{1, 5}})), 0)).bound_at(0, 0) == 0);
}

TEST_CASE("argmax: an id stays what it is in every type, and one that f32 cannot tell is refused") {
  for (const DType rule : {DType::f32, DType::bf16, DType::f16}) {
    EigenBackend<float> b(0, rule);
    const auto pair = b.largest(b.input(matrix({{1, 3, 2}})), no_choice - 3);
    CHECK(pair.value(0, 1) == 16777214.0F);
    CHECK(b.best_of(pair).value(0, 0) == 16777214.0F);
    CHECK(b.dtype(pair) == DType::f32);
    CHECK_THROWS_AS(b.largest(b.input(matrix({{1, 3, 2}})), no_choice - 2), LayoutError);
    CHECK_THROWS_AS(b.best_of(b.input(matrix({{1, 3, 2}}))), LayoutError);
  }
  FieldBackend field(std::make_shared<FieldContext>(FieldContext{7}), 0);
  CHECK_THROWS_AS(field.largest(field_tensor({{1, 3, 2}}), no_choice - 2), LayoutError);
  CHECK_THROWS_AS(field.best_of(field_tensor({{1, 3, 2}})), LayoutError);
  SymbolicContext context;
  SymbolicBackend symbolic(context, 0);
  CHECK_THROWS_AS(symbolic.largest(symbolic.input("x", 1, 3), no_choice - 2), LayoutError);
  CHECK_THROWS_AS(symbolic.best_of(symbolic.input("x", 1, 3)), LayoutError);
  LayerSpec s = head(2, no_choice + 2, "even");
  REQUIRE(violations(s).size() == 1);
  CHECK(violations(s)[0].message ==
        "ids of a choice are exact in f32 up to 16777216 rows, not 16777218");
  s.vocab = no_choice;
  CHECK(violations(s).empty());
  s.gather_output = true;
  CHECK(violations(s).at(0).rule == "state");
}

TEST_CASE("argmax: every reading verifies the head, with padding, on empty ranks, at last tokens") {
  for (const auto& [tp, vocab, cut] :
       std::vector<std::tuple<int, Index, const char*>>{{1, 13, "even"},
                                                        {1, 13, "padded(8)"},
                                                        {4, 101, "padded(8)"},
                                                        {4, 13, "padded(16*tp)"},
                                                        {4, 13, "padded(8) last"},
                                                        {3, 12, "even"},
                                                        {8, 3, "padded(8) last"},
                                                        {8, 3, "padded(8)"}})
    for (int option = 0; option < 8; ++option) {
      LayerSpec s = head(tp, vocab, cut);
      s.bias = (option & 1) != 0;
      s.tied = (option & 2) != 0;
      s.last_token = (option & 4) != 0;
      INFO("tp " << tp << " vocab " << vocab << " " << cut << " option " << option);
      const auto subject = make_subject(s);
      const Report report = verify(*subject);
      CHECK(failed(report).empty());
      for (const char* id : {"cover", "order", "state", "exact", "integer", "rounding"})
        CHECK(check(report, id).compared > 0);
      CHECK_FALSE(check(report, "exact").log2_miss);
      CHECK(test::contains(check(report, "exact").message, "the choices of full()"));
      if (tp == 1) continue;
      CHECK(test::contains(check(report, "state").message, "output replicated"));
      const StaticReading statics = read_statically(*subject);
      REQUIRE(statics.trace.size() == 1);
      CHECK(statics.trace[0].op == CollectiveOp::all_gather);
      CHECK(statics.trace[0].shape == Shape(s.last_token ? 2 : 7, 2));  // no logits
    }
}

TEST_CASE("argmax: any vocabulary, tp to 8, both fills; of equal logits the smallest id") {
  Index ties = 0, across = 0, empty = 0;
  REQUIRE(rc::check([&] {
    const int tp = *rc::gen::inRange(1, 9);
    const Index pad = *rc::gen::inRange<Index>(1, 4) * tp, vocab = *rc::gen::inRange<Index>(1, 30);
    const bool last = *rc::gen::arbitrary<bool>();
    LayerSpec s = head(tp, vocab, "padded(" + std::to_string(pad) + (last ? ") last" : ")"));
    s.tokens = 2;
    s.qkv.hidden = 2;
    const int kinds = *rc::gen::inRange(1, 4);
    std::vector<float> rows;
    for (Index r = 0; r < vocab; ++r)
      rows.push_back(static_cast<float>(*rc::gen::inRange(0, kinds) - 3));  // all negative
    set_rows(s, rows);
    const Index wanted = first_greatest(rows, std::less<>());
    const auto rule = *rc::gen::element(DType::f32, DType::bf16);
    RC_ASSERT(choices(*make_subject(s), rule) == all_choose(tp, 2, static_cast<double>(wanted)));
    const Index held = padded_vocab(vocab_shape(s), tp) / tp;
    for (Index r = wanted + 1; r < vocab; ++r)
      if (rows[static_cast<std::size_t>(r)] == rows[static_cast<std::size_t>(wanted)])
        ++ties, across += r / held != wanted / held ? 1 : 0;
    empty += (tp - 1) * held >= vocab ? 1 : 0;
  }));
  CHECK(ties > 0);
  CHECK(across > 0);
  CHECK(empty > 0);
}

TEST_CASE("argmax: with all logits negative a rank of zeros wins in nobody's name but a fault's") {
  LayerSpec s = head(4, 101, "padded(8)");
  std::vector<float> rows;
  for (int row = 0; row < 101; ++row) rows.push_back(-1 - static_cast<float>((row + 50) % 101));
  set_rows(s, rows);  // the greatest is row 51
  CHECK(choices(*make_subject(s)) == all_choose(4, 7, 51));
  CHECK(choices(*make_faulty_subject(s, "padding-joins-argmax")) == all_choose(4, 7, 101));
  CHECK(choices(*make_faulty_subject(s, "argmax-without-start")) == all_choose(4, 7, 25));
  std::vector<std::vector<double>> alone;
  for (const double id : {0.0, 51.0, 52.0, 78.0}) alone.emplace_back(7, id);
  CHECK(choices(*make_faulty_subject(s, "argmax-over-one-shard")) == alone);
}

TEST_CASE("argmax: without numbers each fault names the columns and the ids") {
  const auto report_of = [](const std::string& fault) {
    LayerSpec s = head(4, 101, "padded(8)");
    s.tokens = 16;
    const Report report = verify(*make_faulty_subject(s, fault));
    INFO(fault);
    CHECK(check(report, "exact").result == Outcome::fail);
    // Of many random logits some are positive: the numbers do not see zeros among them.
    CHECK((check(report, "rounding").result == Outcome::fail) == (fault != "padding-joins-argmax"));
    return report;
  };
  const Report shard = report_of("argmax-over-one-shard");
  CHECK(test::contains(finding_of(shard, "state").message,
                       "Argmax(Lin(x, lm_head.weight) columns [0, 26))"));
  CHECK(finding_of(shard, "state").cause == "the choice is among the columns of some ranks only");
  CHECK(test::contains(finding_of(shard, "collectives").message, "wanted all_gather"));
  const Report start = report_of("argmax-without-start");
  CHECK(test::contains(finding_of(start, "state").message, "[26, 52) as ids [0, 26)"));
  CHECK(test::contains(finding_of(start, "state").cause, "start at 0"));
  const Report padding = report_of("padding-joins-argmax");
  CHECK(test::contains(finding_of(padding, "state").message, "zeros as ids [101, 104)"));
  CHECK(finding_of(padding, "state").cause == "the columns of the padding join the choice");
  // Copies of the last row are greater than nothing but the rows before them; they are told too.
  const Report copies = verify(VocabSubject<FaultyVocabLayers>(
      head(4, 101, "padded(8) last"), {.layer = LayerChange::argmax_of_padding}));
  CHECK(finding_of(copies, "state").cause == "the columns of the padding join the choice");
}

TEST_CASE("argmax: a choice is no partial sum, and pairs are not to be mixed") {
  SymbolicContext context;
  const FullTensor weight = test::full_tensor("lm_head.weight", Shape(6, 2));
  const auto own_pair = [&](SymbolicBackend& b, Index first, Index rows) {
    const SymbolicTensor x = b.input("x", 3, 2);
    return b.largest(b.linear(x, test::held(b, weight, first, rows, 0, 2)), first);
  };
  SymbolicBackend reference(context, -1);
  const SymbolicTensor all = reference.best_of(reference.largest(
      reference.linear(reference.input("x", 3, 2), test::whole(reference, weight)), 0));
  const auto ranks = [&](auto join) {
    return test::run(context, 2, [&](SymbolicBackend& b, Communicator& comm) {
      return join(b, comm, own_pair(b, 3 * comm.rank(), 3));
    });
  };
  test::require_equal(context, ranks([](SymbolicBackend& b, Communicator& comm, SymbolicTensor p) {
                        return b.best_of(all_gather(b, comm, std::move(p)));
                      }),
                      all);
  // Overlapping shards choose among the same columns: the same choice.
  SymbolicBackend one(context, 0);
  const SymbolicTensor a = own_pair(one, 0, 4), c = own_pair(one, 2, 4);
  const std::vector<const SymbolicTensor*> both{&a, &c};
  CHECK_FALSE(compare(context, one.best_of(one.concat(both, 1)), all));
  CHECK(context.findings().empty());
  // Summed pairs, and a maximum beside another one's id.
  const auto summed = ranks([](SymbolicBackend& b, Communicator& comm, SymbolicTensor p) {
    return b.best_of(all_reduce(b, comm, std::move(p)));
  });
  CHECK(compare(context, summed[0], all));
  CHECK(test::contains(test::messages(context), "not a maximum and its id"));
  SymbolicContext other;
  SymbolicBackend b(other, 0);
  const SymbolicTensor left = own_pair(b, 0, 3), right = own_pair(b, 3, 3);
  const SymbolicTensor value = b.slice(left, 1, 0, 1), id = b.slice(right, 1, 1, 1);
  const std::vector<const SymbolicTensor*> crossed{&value, &id};
  (void)b.best_of(b.concat(crossed, 1));
  CHECK(test::contains(test::messages(other), "not a maximum and its id"));
}

}  // namespace vocab_argmax_tests
