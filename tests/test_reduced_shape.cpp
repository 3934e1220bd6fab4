// SPDX-License-Identifier: MIT
// The reduced size of a model is cut as the model is.
#include <tpsim/checkpoint/bound_model.hpp>
#include <tpsim/checkpoint/built_in_models.hpp>
#include <tpsim/verify/reduced_shape.hpp>

#include <tests/support/catch.hpp>

namespace tpsim::test::reduced_shape_tests {
namespace {

int order(Index a, Index b) { return a < b ? -1 : a > b ? 1 : 0; }

/// What decides how a tp cuts a decoder layer; equal for a model and its reduced size.
struct CutFacts {
  bool kv_shared = false;                                    ///< fewer kv heads than ranks
  Index sharing = 1;                                         ///< ranks of one kv head
  bool one_kv = false, one_group = false, one_head = false;  ///< of a rank; of a kv head
  bool odd_heads = false;                                    ///< query heads of a rank
  int heads_to_hidden = 0, v_to_head = 0;
  Index rotary_num = 0, rotary_den = 1;
  bool odd_columns = false;
  Index columns_mod_8 = 0;
  bool window = false;
  friend bool operator==(const CutFacts&, const CutFacts&) = default;
};

CutFacts facts(const DecoderShape& s, Index tp) {
  const AttentionShape& a = s.attention;
  const QkvShape& q = a.qkv;
  CutFacts f;
  f.kv_shared = q.kv_heads < tp;
  f.sharing = f.kv_shared ? tp / q.kv_heads : 1;
  f.one_kv = q.kv_heads <= tp;
  f.one_group = q.heads == q.kv_heads;
  f.one_head = q.heads == tp;
  f.odd_heads = q.heads / tp % 2 != 0;
  f.heads_to_hidden = order(q.heads * q.head_dim, q.hidden);
  f.v_to_head = order(q.v_head(), q.head_dim);
  if (a.rope) {
    const Index common = std::gcd(a.rope->rotary_dim, q.head_dim);
    f.rotary_num = a.rope->rotary_dim / common, f.rotary_den = q.head_dim / common;
  }
  f.odd_columns = s.intermediate / tp % 2 != 0;
  f.columns_mod_8 = s.intermediate / tp % 8;
  f.window = a.window.has_value();
  return f;
}

/// Rows of padding, the ranks that hold nothing else, and whether one holds some of it.
struct PaddingFacts {
  Index padding = 0, empty_ranks = 0;
  bool mixed = false;
  friend bool operator==(const PaddingFacts&, const PaddingFacts&) = default;
};
PaddingFacts padding_facts(const VocabShape& v, Index tp) {
  PaddingFacts f;
  f.padding = padded_vocab(v, tp) - v.vocab;
  for (Index r = 0; r < tp; ++r) {
    const VocabPart part = vocab_part(v, tp, r);
    f.empty_ranks += part.real() == 0 ? 1 : 0;
    f.mixed = f.mixed || (part.real() > 0 && part.real() < part.rows);
  }
  return f;
}

/// @returns how many tp were legal
int require_reduced(const DecoderShape& layer, const VocabShape& vocab, Index most_tp) {
  int legal = 0;
  for (Index tp = 1; tp <= most_tp; ++tp) {
    if (!decoder_violations(layer, tp).empty() || !vocab_violations(vocab, tp).empty()) continue;
    ++legal;
    CAPTURE(tp);
    const ReducedShape small = reduced_shape(layer, vocab, tp);
    CHECK(decoder_violations(small.layer, tp).empty());
    CHECK(vocab_violations(small.vocab, tp).empty());
    CHECK(small.vocab.hidden == small.layer.hidden());
    const CutFacts wanted = facts(layer, tp), have = facts(small.layer, tp);
    CHECK(have.kv_shared == wanted.kv_shared);
    CHECK(have.sharing == wanted.sharing);
    CHECK(have.heads_to_hidden == wanted.heads_to_hidden);
    CHECK(have.rotary_num * wanted.rotary_den == wanted.rotary_num * have.rotary_den);
    CHECK(have.columns_mod_8 == wanted.columns_mod_8);
    CHECK(have == wanted);
    CHECK(padding_facts(small.vocab, tp) == padding_facts(vocab, tp));

    // Nothing but sizes changes, and no size grows.
    const QkvShape &q = small.layer.attention.qkv, &full = layer.attention.qkv;
    CHECK(q.heads <= full.heads);
    CHECK(q.head_dim <= full.head_dim);
    CHECK(small.layer.intermediate <= layer.intermediate);
    CHECK(small.vocab.vocab <= vocab.vocab);
    DecoderShape same = small.layer;
    same.attention.qkv = full;
    same.intermediate = layer.intermediate;
    same.attention.rope = layer.attention.rope;
    CHECK(same.gated == layer.gated);
    CHECK(same.activation == layer.activation);
    CHECK(same.norm == layer.norm);
    CHECK(same.parallel_residual == layer.parallel_residual);
    CHECK(same.attention.qkv_bias == layer.attention.qkv_bias);
    CHECK(same.attention.qk_norm == layer.attention.qk_norm);
    if (small.layer.attention.rope && layer.attention.rope->rotary_dim >= 4)
      CHECK(small.layer.attention.rope->rotary_dim >= 4);  // two pairs: they can be mixed up
  }
  return legal;
}

DecoderShape layer_of(Index hidden, Index heads, Index kv_heads, Index head_dim, Index columns) {
  DecoderShape s;
  s.attention.qkv = {hidden, head_dim, heads, kv_heads, 0};
  s.intermediate = columns;
  return s;
}

}  // namespace

TEST_CASE("reduced shape: every built-in model is cut alike at every tp to 64") {
  for (const BuiltInModel& each : built_in_models()) {
    CAPTURE(each.name);
    const BoundModel model = bind_model(each.config, each.name);
    for (const LayerKind& kind : model.kinds)
      CHECK(require_reduced(kind.shape, model.shape.vocab, 64) >= 3);
  }
}

TEST_CASE("reduced shape: a model of 405 billion weights becomes one of a million") {
  const BuiltInModel* large = find_built_in_model("llama-3.1-405b");
  REQUIRE(large != nullptr);
  const BoundModel model = bind_model(large->config, large->name);
  for (const Index tp : {1, 8, 64}) {
    CAPTURE(tp);
    const ReducedShape s = reduced_shape(model.kinds[0].shape, model.shape.vocab, tp);
    const QkvShape& q = s.layer.attention.qkv;
    const Index weights = (2 * q.heads + 2 * q.kv_heads) * q.head_dim * q.hidden +
                          3 * s.layer.intermediate * q.hidden + 2 * s.vocab.vocab * q.hidden;
    CHECK(weights < 4'000'000);
  }
}

TEST_CASE("reduced shape: widths of v and rotary parts keep their ratio") {
  DecoderShape layer = layer_of(2048, 16, 4, 128, 5504);
  layer.attention.qkv.v_head_dim = 64;
  layer.attention.rope = RopeSpec{32};
  CHECK(require_reduced(layer, {32003, 2048, 64, false}, 16) >= 4);
  layer.attention.qkv.v_head_dim = 192;
  layer.attention.rope->rotary_dim = 128;
  layer.attention.window = 4096;
  CHECK(require_reduced(layer, {32003, 2048, 64, false}, 16) >= 4);
  CHECK(reduced_shape(layer, {32003, 2048, 64, false}, 2).layer.attention.window == 3);
  layer.attention.window = 2;
  CHECK(reduced_shape(layer, {32003, 2048, 64, false}, 2).layer.attention.window == 2);
}

TEST_CASE("reduced shape: ranks without a row of the vocabulary stay so") {
  const DecoderShape layer = layer_of(64, 16, 16, 4, 160);
  for (const VocabShape& vocab :
       {VocabShape{70, 64, 64, false}, VocabShape{1000, 64, 128, true}, VocabShape{65, 64, 64},
        VocabShape{50257, 64, 128, true}, VocabShape{160, 64, 1}})
    CHECK(require_reduced(layer, vocab, 16) >= 3);
  CHECK(padding_facts({70, 64, 64, false}, 16).empty_ranks > 0);
}

TEST_CASE("reduced shape: a model that is small already is left as it is or shrinks") {
  CHECK(require_reduced(layer_of(4, 2, 1, 2, 6), {8, 4, 1, false}, 8) == 2);
  CHECK(require_reduced(layer_of(6, 3, 3, 2, 9), {9, 6, 1, false}, 8) == 2);
}

TEST_CASE("reduced shape: a plan that is bound again has the small sizes") {
  const BuiltInModel* neox = find_built_in_model("pythia-6.9b");
  REQUIRE(neox != nullptr);
  const BoundModel model = bind_model(neox->config, neox->name);
  const ReducedShape small = reduced_shape(model.kinds[0].shape, model.shape.vocab, 4);
  const BoundPlan plan = rebound(model.kinds[0].plan, decoder_axes(small.layer, small.vocab));
  REQUIRE(plan.tensors.size() == model.kinds[0].plan.tensors.size());
  CHECK(violations(plan, 4).empty());
  const QkvShape& q = small.layer.attention.qkv;
  for (std::size_t k = 0; k < plan.tensors.size(); ++k) {
    CHECK(plan.tensors[k].name == model.kinds[0].plan.tensors[k].name);
    if (plan.tensors[k].name == "attention.query_key_value.weight") {
      CHECK(plan.tensors[k].shape_of(plan.tensors[k].layout.rows()) ==
            Shape(3 * q.heads * q.head_dim, q.hidden));
    }
  }
}

}  // namespace tpsim::test::reduced_shape_tests
