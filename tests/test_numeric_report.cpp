// SPDX-License-Identifier: MIT
// What the numeric reading reports: the largest ratio with its place, the detection floor, and the
// linear parts of an mlp on integers.
#include <cmath>

#include <tests/support/catch.hpp>
#include <tests/support/verify_fixture.hpp>

namespace numeric_report_tests {
namespace {

using namespace tpsim;
using namespace tpsim::testing;
using Numeric = Subject::Numeric;

/// Results of the ranks and of full(), computed by hand as the reading is documented to.
struct Both {
  RankRuns<Numeric> runs;
  std::vector<Subject::Reference::Tensor> full;
};
Both run_both(const Subject& subject, const NumericOptions& o) {
  EigenOptions options{.values = {.seed = o.seed}, .track_bounds = true, .order = o.all_reduce};
  const auto x = [&](auto& b) {
    return b.activation("x", Shape(subject.tokens, subject.input_width));
  };
  Both out;
  out.runs = run_ranks<Numeric>(
      subject, subject.tensors,
      [&](int rank) { return std::make_unique<Numeric>(rank, o.dtype, options); }, x, nullptr);
  Subject::Reference reference(0, o.dtype, options);
  out.full = subject.full(reference, x(reference), full_params(reference, subject.tensors));
  return out;
}

struct Expected {
  double ratio = -1, floor = 0;
  OutputPlace at;
};
/// One rank's part of a result: column c of what the rank returns is column `from + c` of `full`.
struct Columns {
  std::string tensor;
  Index begin, count;  ///< in what the rank returns
  std::size_t result;
  Index from, head_dim;  ///< head_dim 0: no heads
};
Expected expected(const Both& b, const std::vector<std::vector<Columns>>& layout) {
  Expected out;
  for (std::size_t r = 0; r < layout.size(); ++r) {
    const auto& have = *b.runs.outputs[r];
    double squares = 0, bound = 0;
    Index elements = 0;
    for (const Columns& part : layout[r])
      for (Index c = 0; c < part.count; ++c)
        for (Index t = 0; t < have.value.rows(); ++t) {
          const auto& full = b.full[part.result];
          const double want = full.value(t, part.from + c),
                       limit = have.bound(t, part.begin + c) + full.bound(t, part.from + c),
                       off = std::abs(static_cast<double>(have.value(t, part.begin + c)) - want);
          squares += want * want, bound = std::max(bound, limit), ++elements;
          if (off / limit <= out.ratio) continue;
          out.ratio = off / limit;
          out.at = {static_cast<int>(r), part.tensor, {}, t, c};
          if (part.head_dim > 0) out.at.head = (part.from + c) / part.head_dim;
        }
    out.floor = std::max(out.floor, bound / std::sqrt(squares / static_cast<double>(elements)));
  }
  return out;
}
void check_report(const Subject& subject, const std::vector<std::vector<Columns>>& layout) {
  for (const DType t : {DType::f32, DType::bf16})
    for (const ReduceOrder order : {ReduceOrder::rank, ReduceOrder::ring, ReduceOrder::f32}) {
      NumericOptions o;
      o.dtype = t, o.all_reduce = order, o.seed = 5;
      const CheckResult have = read_rounding(subject, o)[0];
      const Expected want = expected(run_both(subject, o), layout);
      REQUIRE(have.largest_place.has_value());
      CHECK(std::abs(*have.largest_ratio - want.ratio) <= 1e-12 * want.ratio);
      CHECK(std::abs(*have.detection_floor - want.floor) <= 1e-12 * want.floor);
      CHECK(want.floor > 0);
      CHECK(have.largest_place->rank == want.at.rank);
      CHECK(have.largest_place->tensor == want.at.tensor);
      CHECK(have.largest_place->head == want.at.head);
      CHECK(have.largest_place->token == want.at.token);
      CHECK(have.largest_place->column == want.at.column);
    }
}

TEST_CASE("rounding: ratio, place and floor are those of a plain comparison") {
  std::vector<std::vector<Columns>> row, qkv;
  for (Index r = 0; r < 4; ++r) {
    row.push_back({{"output", 0, 24, 0, 0, 0}});
    // 2 query heads a rank; 2 kv heads of 6 rows, each on two ranks
    qkv.push_back(
        {{"q", 0, 12, 0, 12 * r, 6}, {"k", 12, 6, 1, r / 2 * 6, 6}, {"v", 18, 6, 2, r / 2 * 6, 6}});
  }
  check_report(*make_subject(small("row", 4)), row);
  check_report(*make_subject(small("qkv", 4)), qkv);
}

TEST_CASE("rounding: a change above the reported size is seen at every element") {
  const auto subject = make_subject(small("row", 4));
  NumericOptions o;
  o.dtype = DType::bf16;
  const CheckResult result = read_rounding(*subject, o)[0];
  const Both both = run_both(*subject, o);
  const auto& full = both.full[0];
  const double rms = std::sqrt(full.value.squaredNorm() / static_cast<double>(full.value.size()));
  const double change = (1 + *result.largest_ratio) * *result.detection_floor * rms * 1.0001;
  for (const auto& y : both.runs.outputs)
    for (Index t = 0; t < y->value.rows(); ++t)
      for (Index c = 0; c < y->value.cols(); ++c)
        for (const double sign : {-1.0, 1.0}) {
          const double moved = static_cast<double>(y->value(t, c)) + sign * change;
          CHECK(std::abs(moved - full.value(t, c)) > y->bound(t, c) + full.bound(t, c));
        }
}

TEST_CASE("rounding: the place names the head of qkv, and column and token of row") {
  OutputPlace q{2, "q", Index{5}, 3, 7}, row{0, "output", {}, 1, 9};
  CHECK(place_text(q) == "rank 2 q column 7 (head 5), token 3");
  CHECK(place_text(row) == "rank 0 column 9, token 1");
  NumericOptions o;
  const CheckResult result = read_rounding(*make_subject(small("qkv", 2)), o)[0];
  CHECK(result.largest_at == place_text(*result.largest_place));
}

TEST_CASE("rounding: an mlp is held stage by stage") {
  LayerSpec s = small("mlp", 4);
  s.qkv.hidden = 64, s.intermediate = 1024;
  NumericOptions o;
  o.dtype = DType::bf16;
  const auto subject = make_subject(s);
  const CheckResult staged = read_rounding(*subject, o)[0];
  CHECK(staged.result == Outcome::pass);
  CHECK(*staged.detection_floor < 0.2);
  // what down_proj is fed, and what comes out
  CHECK(staged.compared == s.tokens * (s.intermediate + 4 * s.qkv.hidden));
  // The same layer without stages: its bound passes through silu and mul into the second sum.
  const std::vector<std::vector<Columns>> whole(4, {{"output", 0, s.qkv.hidden, 0, 0, 0}});
  CHECK(expected(run_both(*subject, o), whole).floor > 2 * *staged.detection_floor);

  const auto tensors = [&](const std::string& fault) {
    std::set<std::string> names;
    const CheckResult rounding = read_rounding(*make_faulty_subject(s, fault), o)[0];
    for (const Finding& f : rounding.findings) names.insert(f.tensor);
    return names;
  };
  CHECK(tensors("gate-up-exchanged") == std::set<std::string>{"down_proj input"});
  CHECK(tensors("missing-all-reduce") == std::set<std::string>{"output"});
}

TEST_CASE("integer: an mlp holds its linear layers, each by itself and on all ranks") {
  for (const int tp : {1, 2, 4})
    for (const DType t : {DType::f32, DType::bf16, DType::f16})
      for (const bool bias : {false, true}) {
        LayerSpec s = small("mlp", tp);
        s.bias = bias;
        s.disk = tp == 2 ? "i*(gate + up)" : "";
        NumericOptions o;
        o.dtype = t;
        const CheckResult c = read_integers(*make_subject(s), o);
        CHECK(c.result == Outcome::pass);
        // gate and up once over all ranks, down whole on each
        CHECK(c.compared == s.tokens * (2 * s.intermediate + tp * s.qkv.hidden));
        CHECK(c.message.find("linear parts") == 0);
      }
}

TEST_CASE("integer: a fault of an mlp shows in the part that has it") {
  const auto part_of = [](const std::string& fault) {
    const CheckResult c = read_integers(*make_faulty_subject(small("mlp", 4), fault));
    CHECK(c.result == Outcome::fail);
    const std::string text = c.findings.empty() ? "" : c.findings.front().message;
    return text.find(" of gate_up_proj") != std::string::npos ? "gate_up"
           : text.find(" of down_proj") != std::string::npos  ? "down"
                                                              : "none: " + text;
  };
  CHECK(part_of("gate-up-exchanged") == "gate_up");
  CHECK(part_of("off-by-one-rows") == "gate_up");
  CHECK(part_of("never-written") == "down");  // the last weight of the whole layer
  CHECK(part_of("missing-all-reduce") == "down");
  CHECK(part_of("doubled-all-reduce") == "down");
  CHECK(part_of("bias-on-every-rank") == "down");
}

}  // namespace

}  // namespace numeric_report_tests
