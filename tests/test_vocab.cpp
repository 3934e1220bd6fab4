// SPDX-License-Identifier: MIT
// The embedding and the head: which rows each rank holds, which tokens show it, what padding does.
#include <numeric>

#include <tests/support/catch.hpp>
#include <tests/support/symbolic_fixture.hpp>
#include <tests/support/verify_fixture.hpp>

#include <tpsim/layout/memory_values.hpp>

namespace vocab_tests {
namespace {

using namespace tpsim;
using namespace tpsim::testing;

/// "[26, 52)" or "[78, 101) + 3 zeros" or "0 zeros" of every rank, as the loaders made them.
std::vector<std::string> rows_held(const LayerSpec& s) {
  std::vector<std::string> out;
  for (const HeldRank& rank : read_statically(*make_subject(s)).held) {
    Runs rows;
    for (const Piece& p : rank[0].pieces) rows.append({p.src_row, p.rows, p.src_stride});
    std::string text = rows.empty() ? "" : rows.str();
    if (const Index zeros = rank[0].zeros.size(); zeros > 0)
      text += (text.empty() ? "" : " + ") + std::to_string(zeros) + " zeros";
    out.push_back(text);
  }
  return out;
}

using Texts = std::vector<std::string>;

/// Loaders that treat the padding in another way.
template <class B>
struct Unfilled : VocabParallelEmbedding<B> {
  using VocabParallelEmbedding<B>::VocabParallelEmbedding;
  void weight_loader(typename B::Param& param, const FullTensor& loaded) {
    this->backend_->copy(param, 0, 0, loaded, this->part_.first, this->part_.real());
  }
};
template <class B>
struct ZerosFirst : VocabParallelEmbedding<B> {
  using VocabParallelEmbedding<B>::VocabParallelEmbedding;
  void weight_loader(typename B::Param& param, const FullTensor& loaded) {
    const Index zeros = this->part_.rows - this->part_.real();
    this->backend_->fill_zeros(param, 0, zeros);
    this->backend_->copy(param, 0, zeros, loaded, this->part_.first, this->part_.real());
  }
};
template <template <class> class E>
struct LayersWith {
  template <class B>
  using Embedding = E<B>;
  template <class B>
  using Head = ParallelLMHead<B>;
};

}  // namespace

TEST_CASE("vocabulary: 101 rows over 4 ranks, padded to multiples of 8, 64 and 128 tp") {
  for (const char* layer : {"embedding", "lm_head"}) {
    INFO(layer);
    CHECK(rows_held(vocab_layer(layer, 4, 101, "padded(8)")) ==
          Texts{"[0, 26)", "[26, 52)", "[52, 78)", "[78, 101) + 3 zeros"});
    CHECK(rows_held(vocab_layer(layer, 4, 101, "padded(64)")) ==
          Texts{"[0, 32)", "[32, 64)", "[64, 96)", "[96, 101) + 27 zeros"});
    CHECK(rows_held(vocab_layer(layer, 4, 101, "padded(128*tp)")) ==
          Texts{"[0, 101) + 27 zeros", "128 zeros", "128 zeros", "128 zeros"});
    CHECK(rows_held(vocab_layer(layer, 2, 130, "padded(64)")) ==
          Texts{"[0, 96)", "[96, 130) + 62 zeros"});
    CHECK(rows_held(vocab_layer(layer, 3, 12, "even")) == Texts{"[0, 4)", "[4, 8)", "[8, 12)"});
  }
}

TEST_CASE("vocabulary: every reading verifies both layers with padding, without, on empty ranks") {
  for (const char* layer : {"embedding", "lm_head"})
    for (const auto& [tp, vocab, cut] :
         std::vector<std::tuple<int, Index, const char*>>{{1, 101, "even"},
                                                          {1, 101, "padded(64)"},
                                                          {4, 101, "padded(8)"},
                                                          {4, 101, "padded(64)"},
                                                          {4, 101, "padded(128*tp)"},
                                                          {3, 12, "even"},
                                                          {8, 3, "padded(8)"},
                                                          {2, 1, "padded(2)"},
                                                          {1, 13, "padded(8) last"},
                                                          {4, 13, "padded(8) last"},
                                                          {4, 13, "padded(16*tp) last"},
                                                          {8, 3, "padded(8) last"},
                                                          {2, 16, "padded(8) last"}})
      for (int option = 0; option < (layer == std::string("embedding") ? 1 : 8); ++option) {
        LayerSpec s = vocab_layer(layer, tp, vocab, cut);
        s.bias = (option & 1) != 0;
        s.gather_output = (option & 2) != 0;
        s.tied = (option & 4) != 0;
        INFO(layer << " tp " << tp << " vocab " << vocab << " " << cut << " option " << option);
        const Report report = verify(*make_subject(s));
        CHECK(failed(report).empty());
        for (const char* id : {"divide", "cover", "order", "state", "exact", "integer", "rounding"})
          CHECK(check(report, id).compared > 0);
      }
}

TEST_CASE("vocabulary: tp that the padded rows do not go round is refused, with what is legal") {
  // 101 pads to 128 whatever tp is, as engines do that pad to 64 alone.
  const LayerSpec s = vocab_layer("embedding", 3, 101, "padded(64)");
  CHECK(legal_tp(s, 8) == std::vector<int>{1, 2, 4, 8});
  CHECK(legal_tp(vocab_layer("embedding", 1, 101, "padded(128*tp)"), 5) ==
        std::vector<int>{1, 2, 3, 4, 5});
  CHECK(legal_tp(vocab_layer("lm_head", 1, 101, "even"), 512) == std::vector<int>{1, 101});
  try {
    (void)make_subject(s);
    FAIL("not refused");
  } catch (const LayoutError& e) {
    REQUIRE(e.violations().size() == 1);
    CHECK(e.violations()[0].rule == "divide");
    CHECK(e.violations()[0].message == "128 padded vocabulary rows over 3 ranks leaves 2");
    CHECK(e.hint().starts_with("tp can be 1, 2, 4"));
  }
  const std::vector<Violation> two = violations(vocab_layer("embedding", 2, 0, "chunk"));
  REQUIRE(two.size() == 2);
  CHECK(two[0].message == "vocab is 0, it must be positive");
  CHECK(two[1].message == "a vocabulary is cut evenly or padded, not 'chunk'");
}

TEST_CASE("vocabulary: the tokens have the first and last row of every rank") {
  const auto subject = make_subject(vocab_layer("embedding", 4, 101, "padded(64)"));
  const std::vector<Index> borders{0, 31, 32, 63, 64, 95, 96, 100};
  CHECK(subject->token_ids == borders);
  const std::vector<Runs>& rows = subject->params[0].parts[0].rows;
  CHECK(covers_border_ids(borders, rows));
  for (const Index left_out : borders) {
    std::vector<Index> ids = borders;
    std::erase(ids, left_out);
    CHECK_FALSE(covers_border_ids(ids, rows));
  }
  // Ranks of padding alone have no row to touch.
  CHECK(make_subject(vocab_layer("embedding", 4, 101, "padded(128*tp)"))->token_ids.size() == 5);
}

TEST_CASE("embedding: ids outside the vocabulary are refused") {
  SymbolicContext context;
  for (const Index id : {Index{-1}, Index{101}})
    CHECK_THROWS_AS(test::run(context, 2,
                              [&](SymbolicBackend& b, Communicator& comm) {
                                VocabParallelEmbedding<SymbolicBackend> e(b, comm, {101, 6, 2});
                                return e.forward({0, id});
                              }),
                    LayoutError);
}

TEST_CASE("embedding: without numbers each fault names the ids that it concerns") {
  const auto state_of = [](const std::string& fault, int tp) {
    const Report report =
        verify(*make_faulty_subject(vocab_layer("embedding", tp, 101, "padded(8)"), fault));
    CHECK(check(report, "exact").result == Outcome::fail);
    CHECK(check(report, "rounding").result == Outcome::fail);
    return check(report, "state").findings.at(0);
  };
  const Finding border = state_of("vocab-border-off-by-one", 4);
  CHECK(test::contains(border.message, "[1, 26) [27, 52) [53, 78) [79, 101) of 101"));
  CHECK(border.cause == "some ids read another row than their own");
  const Finding masked = state_of("ids-not-masked", 2);
  CHECK(test::contains(masked.message, "row 51"));
  CHECK(test::contains(masked.cause, "not zeroed"));
  const Finding zeroed = state_of("ids-not-zeroed", 2);
  CHECK(test::contains(zeroed.message, "row 52"));
  const Finding sum = state_of("missing-all-reduce", 4);
  CHECK(test::contains(sum.message, "[0, 26) of 101 summed so far"));
  CHECK(sum.cause == "no collective sums the partial products");
}

TEST_CASE("head: with all logits negative a kept padding wins, and it is found") {
  LayerSpec s = vocab_layer("lm_head", 4, 101, "padded(8)");
  // Row r is -(r + 1) everywhere, the input is ones: every logit is negative.
  std::vector<float> numbers;
  for (int row = 0; row < 101; ++row)
    numbers.insert(numbers.end(), 6, -static_cast<float>(row + 1));
  s.values["lm_head.weight"] = std::make_shared<MemoryValues>(Shape(101, 6), numbers);
  const auto first_row = [](const Subject& subject) {
    using B = Subject::Numeric;
    const auto runs = run_ranks<B>(
        subject, subject.tensors, [](int rank) { return std::make_unique<B>(rank); },
        [](B& b) { return b.input(eigen::Matrix<float>(eigen::Matrix<float>::Ones(1, 6))); },
        [](std::size_t, B&, ModuleOn<B>&) {});
    for (std::size_t r = 1; r < runs.outputs.size(); ++r) CHECK(runs.outputs[r]->value.cols() == 0);
    return runs.outputs[0]->value;
  };
  Index best = -1;
  const auto right = first_row(*make_subject(s));
  REQUIRE(right.cols() == 101);
  CHECK(right.row(0).maxCoeff(&best) == -6);
  CHECK(best == 0);
  const auto faulty = make_faulty_subject(s, "padded-logits-kept");
  const auto wrong = first_row(*faulty);
  REQUIRE(wrong.cols() == 104);
  CHECK(wrong.row(0).maxCoeff(&best) == 0);
  CHECK(best == 101);  // a token that does not exist
  const Report report = verify(*faulty);
  for (const char* id : {"state", "exact", "rounding"})
    CHECK(check(report, id).result == Outcome::fail);
  CHECK(test::contains(check(report, "state").findings[0].cause, "a padded logit is 0"));
}

TEST_CASE("head: tied to the embedding it loads one tensor, and a whole copy of it is found") {
  LayerSpec s = vocab_layer("lm_head", 4, 101, "padded(64)");
  s.tied = true;
  const auto subject = make_subject(s);
  REQUIRE(subject->tensors.size() == 1);
  CHECK(subject->tensors[0].stored->name == "embed_tokens.weight");
  const Report report = verify(*make_faulty_subject(s, "tied-head-not-cut"));
  CHECK(failed(report) == std::set<std::string>{"divide", "cover", "order"});
}

TEST_CASE("last token: a head over other tokens than the last of each sequence is found") {
  for (const bool argmax : {false, true}) {
    LayerSpec s = vocab_layer("lm_head", 4, 101, "padded(8)");
    s.tokens = 12;  // sequences of 8 and 4
    s.argmax = argmax;
    s.last_token = true;
    const StaticReading right = read_statically(*make_subject(s));
    for (const CheckResult& c : right.checks) CHECK(c.findings.empty());
    const Report batch = verify(*make_faulty_subject(s, "last-token-of-batch"));
    CHECK(check(batch, "state").findings.at(0).message ==
          "rank 0: output holds tokens [11, 12) [11, 12), expected 7:12:4");
    CHECK(test::contains(check(batch, "state").findings.at(0).cause, "the tokens are others"));
    for (const char* id : {"exact", "rounding"}) CHECK(check(batch, id).result == Outcome::fail);
    const Report all = verify(*make_faulty_subject(s, "head-over-all-tokens"));
    CHECK(test::contains(check(all, "state").findings.at(0).message, "holds tokens [0, 12)"));
    for (const char* id : {"exact", "rounding"}) CHECK(check(all, id).result == Outcome::fail);
  }
}

TEST_CASE("vocabulary: padding that is not filled, or not last, is found on the rank that has it") {
  const LayerSpec s = vocab_layer("embedding", 4, 101, "padded(8)");
  const StaticReading unfilled = read_statically(VocabSubject<LayersWith<Unfilled>>(s));
  for (const CheckResult& c : unfilled.checks) {
    if (c.id != "cover") continue;
    REQUIRE(c.findings.size() == 1);
    CHECK(c.findings[0].message == "rank 3 embed_tokens.weight: rows [23, 26) were never written");
  }
  const Report first = verify(VocabSubject<LayersWith<ZerosFirst>>(s));
  REQUIRE(check(first, "order").findings.size() >= 1);
  CHECK(check(first, "order").findings[0].rank == 3);
  CHECK(check(first, "exact").result == Outcome::fail);
}

TEST_CASE("fill_zeros: rows of zeros are known as such, and no copy of a tensor") {
  SymbolicContext context;
  SymbolicBackend b(context, 0);
  const FullTensor table = test::full_tensor("embed_tokens.weight", Shape(5, 2));
  SymbolicParam unfilled = b.empty("weight", Shape(4, 2)), filled = unfilled;
  b.copy(unfilled, 0, 0, table, 2, 3);
  CHECK(unfilled.unwritten() == Runs::range(3, 4));
  CHECK(unfilled.zeros().empty());
  b.copy(filled, 0, 1, table, 2, 3);
  b.fill_zeros(filled, 0, 1);
  CHECK(filled.unwritten().empty());
  CHECK(filled.zeros() == Runs::range(0, 1));
  CHECK(filled.pieces().size() == 1);
  b.fill_zeros(filled, 0, 4);
  CHECK(filled.overwritten() == Runs::range(0, 4));
  CHECK_THROWS_AS(b.fill_zeros(filled, 3, 2), LayoutError);
}

TEST_CASE("lookup: rows are read as they are kept, and clamped where there are none") {
  FieldBackend field(std::make_shared<FieldContext>(FieldContext{7}), 0);
  EigenBackend<float> numeric;
  const FullTensor table = test::full_tensor("embed_tokens.weight", Shape(5, 300));
  FieldParam f = field.empty("weight", Shape(4, 300));
  eigen::Param e = numeric.empty("weight", Shape(4, 300));
  field.copy(f, 0, 0, table, 2, 3);
  numeric.copy(e, 0, 0, table, 2, 3);
  field.fill_zeros(f, 3, 1);
  numeric.fill_zeros(e, 3, 1);
  const std::vector<Index> rows{2, 0, -5, 3, 9};
  const FieldTensor all = field.read(f), read = field.lookup(f, rows);
  const auto numbers = numeric.lookup(e, rows);
  const std::vector<Index> clamped{2, 0, 0, 3, 3};
  for (Index t = 0; t < 5; ++t)
    for (Index c = 0; c < 300; ++c) {
      const Index row = clamped[static_cast<std::size_t>(t)];
      CHECK(read.at(t, c) == all.at(row, c));
      CHECK(static_cast<double>(numbers.value(t, c)) == e.at(row, c));
      if (row == 3) CHECK((read.at(t, c) == 0 && numbers.value(t, c) == 0));
      if (row != 3) CHECK((read.at(t, c) != 0 && numbers.value(t, c) != 0));
    }
  const auto kept = field.keep_tokens(read, {true, false, true, true, true});
  CHECK(kept.at(0, 5) == read.at(0, 5));
  CHECK(kept.at(1, 5) == 0);
  CHECK_THROWS_AS(field.keep_tokens(read, {true}), LayoutError);
}

TEST_CASE("lookup: without numbers every id is followed, whichever tokens a batch has") {
  SymbolicContext context;
  SymbolicBackend b(context, 0);
  const SymbolicParam table =
      test::held(b, test::full_tensor("embed_tokens.weight", Shape(6, 2)), 2, 3, 0, 2);
  const auto text = [&](const std::vector<Index>& rows) {
    std::string out;
    const SymbolicTensor y = b.lookup(table, rows);
    for (const Term& t : y.columns.at(0).terms)
      out += context.name(t.value) + " " + t.summed.str() + "; ";
    return out;
  };
  // Rows 2 to 4 of 6: ids 2, 3 and 4 read their own.
  CHECK(test::contains(text({0, 0, 0, 1, 2, 0}), "Lookup(ids, embed_tokens.weight) [2, 5) of 6"));
  CHECK(test::contains(text({0, 0, 0, 1, 2, 0}),
                       "Lookup(row 2, embed_tokens.weight) [0, 2) [5, 6) of 6"));
  CHECK(
      test::contains(text({0, 1, 2, 0, 0, 0}), "Lookup(ids + 2, embed_tokens.weight) [0, 3) of 6"));
  CHECK(describe(context, b.lookup(table, {0, 0, 0, 1, 2, 0}).columns.at(0)) ==
        "Lookup(ids or row 2, embed_tokens.weight) columns [0, 2)");
  const SymbolicTensor kept =
      b.keep_tokens(b.lookup(table, {0, 0, 0, 1, 2, 0}), {false, false, true, true, true, false});
  REQUIRE(kept.columns.size() == 1);
  REQUIRE(kept.columns[0].terms.size() == 1);
  CHECK(kept.columns[0].terms[0].summed == Coverage::of(Runs::range(2, 5), 6));
  CHECK_THROWS_AS(b.keep_tokens(kept, {true}), LayoutError);
  CHECK_THROWS_AS(b.lookup(b.empty("weight", Shape(0, 2)), {0}), LayoutError);
  // Every second id: a mask need not be one range.
  const SymbolicTensor odd = b.keep_tokens(
      b.lookup(test::whole(b, test::full_tensor("t", Shape(6, 2))), {0, 1, 2, 3, 4, 5}),
      {false, true, false, true, false, true});
  CHECK(odd.columns[0].terms[0].summed.str() == "[1, 2) [3, 4) [5, 6) of 6");
}

}  // namespace vocab_tests
