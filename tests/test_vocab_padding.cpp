// SPDX-License-Identifier: MIT
// A vocabulary that is padded with copies of its last row: what the ranks hold, that nothing reads
// it, and loaders that pad otherwise.
#include <rapidcheck.h>

#include <tests/support/catch.hpp>
#include <tests/support/symbolic_fixture.hpp>
#include <tests/support/verify_fixture.hpp>

namespace vocab_padding_tests {
namespace {

using namespace tpsim;
using namespace tpsim::testing;

/// The row of the table in each row of a rank; -1: zeros, -2: never written.
std::vector<Index> rows_of(const HeldParam& held) {
  std::vector<Index> rows(static_cast<std::size_t>(held.shape.rows()), -2);
  for (const Piece& p : held.pieces)
    for (Index i = 0; i < p.rows; ++i)
      rows[static_cast<std::size_t>(p.row + i)] = p.src_row + i * p.src_stride;
  for (const Run& zeros : held.zeros)
    for (Index i = 0; i < zeros.length; ++i) rows[static_cast<std::size_t>(zeros.at(i))] = -1;
  return rows;
}

/// What the ranks have to hold, told row by row.
std::vector<Index> padded_rows(Index vocab, Index padded, int tp, int rank, Index filled_with) {
  std::vector<Index> rows;
  for (Index row = rank * (padded / tp); row < (rank + 1) * (padded / tp); ++row)
    rows.push_back(row < vocab ? row : filled_with);
  return rows;
}

// Loaders that pad otherwise than they ought to.
template <class B>
struct ZeroPadded : VocabParallelEmbedding<B> {
  using VocabParallelEmbedding<B>::VocabParallelEmbedding;
  void weight_loader(typename B::Param& param, const FullTensor& loaded) {
    this->backend_->copy(param, 0, 0, loaded, this->part_.first, this->part_.real());
    this->backend_->fill_zeros(param, this->part_.real(), this->part_.rows - this->part_.real());
  }
};
template <class B, int which>
struct RowPadded : VocabParallelEmbedding<B> {
  using VocabParallelEmbedding<B>::VocabParallelEmbedding;
  void weight_loader(typename B::Param& param, const FullTensor& loaded) {
    const VocabPart& part = this->part_;
    this->backend_->copy(param, 0, 0, loaded, part.first, part.real());
    // 0: the table's first row; 1: a row of another rank; 2: the last rows, in order
    for (Index row = part.real(); row < part.rows; ++row)
      this->backend_->copy(param, 0, row, loaded,
                           which == 0   ? 0
                           : which == 1 ? std::max<Index>(part.last - 1, 0) / 2
                                        : this->shape_.vocab - 1 - (part.rows - 1 - row),
                           1);
  }
};
template <class B>
struct LastFirst : VocabParallelEmbedding<B> {
  using VocabParallelEmbedding<B>::VocabParallelEmbedding;
  void weight_loader(typename B::Param& param, const FullTensor& loaded) {
    const Index padding = this->part_.rows - this->part_.real();
    for (Index row = 0; row < padding; ++row)
      this->backend_->copy(param, 0, row, loaded, this->shape_.vocab - 1, 1);
    this->backend_->copy(param, 0, padding, loaded, this->part_.first, this->part_.real());
  }
};
template <class B>
using FirstRow = RowPadded<B, 0>;
template <class B>
using OtherRow = RowPadded<B, 1>;
template <class B>
using RowsBefore = RowPadded<B, 2>;

template <template <class> class E>
struct LayersWith {
  template <class B>
  using Embedding = E<B>;
  template <class B>
  using Head = ParallelLMHead<B>;
};

/// The only finding of `id`, or the first of several.
Finding found(const Report& report, const std::string& id) {
  INFO(id);
  REQUIRE(check(report, id).findings.size() >= 1);
  return check(report, id).findings[0];
}

}  // namespace

TEST_CASE("padding: copies of row V - 1, also on ranks that hold nothing else") {
  const auto rows = [](const LayerSpec& s) {
    std::vector<std::vector<Index>> out;
    for (const HeldRank& rank : read_statically(*make_subject(s)).held)
      out.push_back(rows_of(rank[0]));
    return out;
  };
  using Rows = std::vector<std::vector<Index>>;
  CHECK(rows(vocab_layer("embedding", 4, 5, "padded(8) last")) ==
        Rows{{0, 1}, {2, 3}, {4, 4}, {4, 4}});
  CHECK(rows(vocab_layer("lm_head", 4, 5, "padded(8) zero")) ==
        Rows{{0, 1}, {2, 3}, {4, -1}, {-1, -1}});
  CHECK(rows(vocab_layer("lm_head", 3, 4, "padded(2*tp) last")) == Rows{{0, 1}, {2, 3}, {3, 3}});
  CHECK(rows(vocab_layer("lm_head", 2, 1, "padded(4) last")) == Rows{{0, 0}, {0, 0}});
}

TEST_CASE("padding: any vocabulary, any tp to 8, both fills: held as told row by row") {
  int empty_ranks = 0, filled = 0;
  REQUIRE(rc::check([&] {
    const int tp = *rc::gen::inRange(1, 9);
    const bool times_tp = *rc::gen::arbitrary<bool>(), last = *rc::gen::arbitrary<bool>();
    const Index pad = *rc::gen::inRange<Index>(1, 7) * (times_tp ? 1 : tp);
    const Index vocab = *rc::gen::inRange<Index>(1, 60);
    const char* layer = *rc::gen::arbitrary<bool>() ? "embedding" : "lm_head";
    LayerSpec s = vocab_layer(
        layer, tp, vocab,
        "padded(" + std::to_string(pad) + (times_tp ? "*tp)" : ")") + (last ? " last" : " zero"));
    s.bias = layer == std::string("lm_head");
    s.tied = s.bias && *rc::gen::arbitrary<bool>();
    const Index multiple = pad * (times_tp ? tp : 1);
    const Index padded = (vocab + multiple - 1) / multiple * multiple;
    const StaticReading reading = read_statically(*make_subject(s));
    for (const CheckResult& c : reading.checks) RC_ASSERT(c.findings.empty());
    for (int r = 0; r < tp; ++r)
      for (const HeldParam& held : reading.held[static_cast<std::size_t>(r)]) {
        RC_ASSERT(rows_of(held) == padded_rows(vocab, padded, tp, r, last ? vocab - 1 : -1));
        empty_ranks += r * (padded / tp) >= vocab ? 1 : 0;
        filled += last && padded > vocab ? 1 : 0;
      }
  }));
  CHECK(empty_ranks > 0);
  CHECK(filled > 0);
}

TEST_CASE("padding: the report says of each rank's rows whether they are like the last") {
  const auto label_of = [](const Subject& subject, int rank) {
    VerifyOptions statics;
    statics.exact = statics.numeric = false;
    const Report report = verify(subject, statics);
    const ShardPiece& piece =
        report.tensors.at(0).shards.at(static_cast<std::size_t>(rank)).pieces.back();
    CHECK(piece.part == "padding");
    return std::pair(piece.label, piece.as_declared);
  };
  const LayerSpec last = vocab_layer("embedding", 4, 5, "padded(8) last");
  CHECK(label_of(*make_subject(last), 3) ==
        std::pair<std::string, bool>("2 rows like the last", true));
  CHECK(label_of(VocabSubject<LayersWith<ZeroPadded>>(last), 3) ==
        std::pair<std::string, bool>("not like the last row", false));
  CHECK(label_of(*make_subject(vocab_layer("embedding", 4, 5, "padded(8)")), 3) ==
        std::pair<std::string, bool>("2 rows of zeros", true));
}

TEST_CASE("padding: a loader that pads with other rows, with zeros, or first, is found") {
  const LayerSpec last = vocab_layer("embedding", 4, 101, "padded(8) last");
  const Report zeros = verify(VocabSubject<LayersWith<ZeroPadded>>(last));
  CHECK(failed(zeros) == std::set<std::string>{"order"});
  CHECK(found(zeros, "order").message ==
        "rank 3 embed_tokens.weight: rows [23, 26) are padding, but zeros, wanted "
        "embed_tokens.weight row 100");
  CHECK(found(zeros, "order").cause == "the padding is no copy of the last row");

  const Report first = verify(VocabSubject<LayersWith<FirstRow>>(last));
  CHECK(failed(first) == std::set<std::string>{"cover", "order"});
  CHECK(test::contains(found(first, "cover").message, "rows [0, 1) are on 4 ranks"));
  CHECK(test::contains(found(first, "order").message, "wanted row 100"));
  CHECK(failed(verify(VocabSubject<LayersWith<OtherRow>>(last))) ==
        std::set<std::string>{"cover", "order"});
  // Rows 98, 99, 100: the last of them is right, by chance.
  const Report before = verify(VocabSubject<LayersWith<RowsBefore>>(last));
  CHECK(failed(before) == std::set<std::string>{"cover", "order"});
  CHECK(test::contains(found(before, "cover").message, "rows [98, 101) are on 2 ranks"));
  const Report top = verify(VocabSubject<LayersWith<LastFirst>>(last));
  CHECK(failed(top).count("order") == 1);
  CHECK(failed(top).count("exact") == 1);

  // The reverse: copies where zeros are declared.
  const LayerSpec zero = vocab_layer("embedding", 4, 101, "padded(8)");
  const Report copies = verify(VocabSubject<LayersWith<FirstRow>>(zero));
  CHECK(failed(copies) == std::set<std::string>{"cover", "order"});
  CHECK(test::contains(found(copies, "order").message, "zeros are in rows none"));
}

TEST_CASE(
    "padding: the logits of its copies are cut too, and kept ones are told apart from zeros") {
  LayerSpec s = vocab_layer("lm_head", 4, 101, "padded(8) last");
  const Report report =
      verify(VocabSubject<FaultyVocabLayers>(s, {.layer = LayerChange::padding_kept}));
  for (const char* id : {"state", "exact", "rounding"})
    CHECK(check(report, id).result == Outcome::fail);
  CHECK(found(report, "state").cause ==
        "the columns of the padding reach the reader: a padded logit is the last token's again");
}

TEST_CASE("padding: the numbers of a rank of padding alone are the last row's") {
  for (const char* cut : {"padded(8) last", "padded(8) zero"}) {
    const auto subject = make_subject(vocab_layer("lm_head", 4, 5, cut));
    using B = Subject::Numeric;
    bool last = cut == std::string("padded(8) last");
    Index compared = 0;
    (void)run_ranks<B>(
        *subject, subject->tensors, [](int rank) { return std::make_unique<B>(rank); }, nullptr,
        [&](std::size_t r, B& b, ModuleOn<B>& module) {
          if (r != 3) return;
          const FullParams<B> whole = full_params(b, subject->tensors);
          const eigen::Param& table = whole.at("lm_head.weight");
          const eigen::Param& mine = *module.params()[0].second;
          for (Index row = 0; row < 2; ++row)
            for (Index c = 0; c < 6; ++c, ++compared)
              CHECK(mine.at(row, c) == (last ? table.at(4, c) : 0));
        });
    CHECK(compared == 12);
  }
}

}  // namespace vocab_padding_tests
