// SPDX-License-Identifier: MIT
// Attention in the exact backend.
#include <rapidcheck.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include <numeric>

#include <tests/support/catch.hpp>
#include <tests/support/decoder_field.hpp>

namespace tpsim::attention_field_tests {
namespace {

using gf61::Element, gf61::p;
using testing::differ_everywhere, testing::field_backend, testing::joined, testing::permuted;

/// q, k and v of one sequence, and what attends to them.
struct Sequence {
  AttentionSpec spec;
  FieldTensor q, k, v;
  std::vector<Element> sinks;  ///< [heads], or empty
};

AttentionSpec spec_of(Index heads, Index kv_heads, Index head_dim, Index v_head_dim) {
  AttentionSpec s;
  s.heads = heads, s.kv_heads = kv_heads;
  s.head_dim = s.scale_dim = head_dim;
  s.v_head_dim = v_head_dim;
  return s;
}
Sequence sequence(const AttentionSpec& s, Index tokens) {
  const FieldBackend b = field_backend();
  const Index context = s.first_position + tokens;
  return {s,
          b.input("q", tokens, s.heads * s.head_dim),
          b.input("k", context, s.kv_heads * s.head_dim),
          b.input("v", context, s.kv_heads * s.v_head_dim),
          {}};
}
template <class B>
FieldTensor attend(B& b, const Sequence& x) {
  if (x.sinks.empty()) return b.attention(x.q, x.k, x.v, x.spec, nullptr);
  const FieldParam sinks = b.stored(Shape(static_cast<Index>(x.sinks.size())), x.sinks);
  return b.attention(x.q, x.k, x.v, x.spec, &sinks);
}
/// Query heads [first, first + heads) with the kv heads that they read.
Sequence heads_of(const Sequence& x, Index first, Index heads) {
  const FieldBackend b = field_backend();
  const Index group = x.spec.heads / x.spec.kv_heads, kv = first / group;
  const Index kv_heads = (heads + group - 1) / group;
  Sequence out = x;
  out.spec.heads = heads, out.spec.kv_heads = kv_heads;
  if (out.spec.alibi) out.spec.alibi->first_head += first;
  out.q = b.slice(x.q, 1, first * x.spec.head_dim, heads * x.spec.head_dim);
  out.k = b.slice(x.k, 1, kv * x.spec.head_dim, kv_heads * x.spec.head_dim);
  out.v = b.slice(x.v, 1, kv * x.spec.v_head_dim, kv_heads * x.spec.v_head_dim);
  if (!x.sinks.empty()) out.sinks.assign(x.sinks.begin() + first, x.sinks.begin() + first + heads);
  return out;
}
/// Tokens [first, first + tokens), when the cache holds the earlier ones.
Sequence tokens_of(const Sequence& x, Index first, Index tokens) {
  const FieldBackend b = field_backend();
  Sequence out = x;
  out.spec.first_position += first;
  const Index context = out.spec.first_position + tokens;
  out.q = b.slice(x.q, 0, first, tokens);
  out.k = b.slice(x.k, 0, 0, context);
  out.v = b.slice(x.v, 0, 0, context);
  return out;
}

/// The definition, key by key; `shift` is what each softmax subtracts from its scores, whose
/// factor K(shift) every exponential is divided by.
FieldTensor written_out(const Sequence& x, Element shift) {
  const AttentionSpec& s = x.spec;
  const SipOracle oracle(testing::decoder_seed);
  const Element k = gf61::inverse(oracle.nonzero("shift", shift));
  const auto exp_shifted = [&](Element score) {
    return gf61::mul(oracle.nonzero("exp", score), k);
  };
  const Element scale = oracle.nonzero("rsqrt", static_cast<Element>(s.scale_dim));
  FieldTensor out(x.q.tokens, s.heads * s.v_head_dim);
  for (Index h = 0; h < s.heads; ++h) {
    const Index kv = h / (s.heads / s.kv_heads);
    for (Index t = 0; t < x.q.tokens; ++t) {
      const Index at = s.first_position + t;
      Element sum = x.sinks.empty() ? 0 : exp_shifted(x.sinks[static_cast<std::size_t>(h)]);
      std::vector<Element> average(static_cast<std::size_t>(s.v_head_dim));
      for (Index j = 0; j <= at; ++j) {
        if (s.window && j + *s.window <= at) continue;
        Element score = 0;
        for (Index c = 0; c < s.head_dim; ++c)
          score = gf61::add(
              score, gf61::mul(x.q.at(t, h * s.head_dim + c), x.k.at(j, kv * s.head_dim + c)));
        score = gf61::mul(score, scale);
        if (s.alibi) {
          const Element slope =
              oracle.value("alibi slope of " + std::to_string(s.alibi->total_heads) + " heads",
                           static_cast<Element>(s.alibi->first_head + h));
          score = gf61::sub(score, gf61::mul(slope, static_cast<Element>(at - j)));
        }
        const Element weight = exp_shifted(score);
        sum = gf61::add(sum, weight);
        for (Index c = 0; c < s.v_head_dim; ++c) {
          Element& to = average[static_cast<std::size_t>(c)];
          to = gf61::add(to, gf61::mul(weight, x.v.at(j, kv * s.v_head_dim + c)));
        }
      }
      const Element factor = gf61::inverse(sum);
      for (Index c = 0; c < s.v_head_dim; ++c)
        out.row(t)[h * s.v_head_dim + c] = gf61::mul(average[static_cast<std::size_t>(c)], factor);
    }
  }
  return out;
}

Sequence random_sequence() {
  const Index kv_heads = *rc::gen::inRange<Index>(1, 4), group = *rc::gen::inRange<Index>(1, 4);
  AttentionSpec s = spec_of(kv_heads * group, kv_heads, *rc::gen::inRange<Index>(1, 70),
                            *rc::gen::inRange<Index>(1, 6));
  s.first_position = *rc::gen::inRange<Index>(0, 5);
  if (*rc::gen::arbitrary<bool>()) s.window = *rc::gen::inRange<Index>(1, 8);
  if (*rc::gen::arbitrary<bool>()) s.alibi = Alibi{*rc::gen::inRange<Index>(0, 3), 16};
  Sequence x = sequence(s, *rc::gen::inRange<Index>(1, 7));
  if (*rc::gen::arbitrary<bool>()) x.sinks = field_backend().input("sinks", 1, s.heads).values;
  return x;
}

TEST_CASE("attention: equals its definition whatever the softmax subtracts from the scores") {
  REQUIRE(rc::check([] {
    FieldBackend b = field_backend();
    const Sequence x = random_sequence();
    const FieldTensor y = attend(b, x);
    RC_ASSERT(y == written_out(x, *rc::gen::inRange<Element>(0, p)));
  }));
}

TEST_CASE("attention: long prompts equal the definition too") {
  for (const std::optional<Index> window : {std::optional<Index>(), std::optional<Index>(70)}) {
    AttentionSpec s = spec_of(4, 2, 3, 2);
    s.window = window, s.first_position = 9, s.alibi = Alibi{4, 8};
    const Sequence x = sequence(s, 150);  // several blocks of queries
    FieldBackend b = field_backend();
    CHECK(attend(b, x) == written_out(x, 5));
  }
}

TEST_CASE("attention: heads alone equal those heads among all") {
  REQUIRE(rc::check([] {
    FieldBackend b = field_backend();
    const Sequence x = random_sequence();
    const FieldTensor whole = attend(b, x);
    const Index d = x.spec.v_head_dim, group = x.spec.heads / x.spec.kv_heads;
    for (Index h = 0; h < x.spec.heads; ++h)
      RC_ASSERT(attend(b, heads_of(x, h, 1)) == b.slice(whole, 1, h * d, d));
    for (Index kv = 0; kv < x.spec.kv_heads; ++kv)
      RC_ASSERT(attend(b, heads_of(x, kv * group, group)) ==
                b.slice(whole, 1, kv * group * d, group * d));
  }));
}

TEST_CASE("attention: prefill equals chunks equals one token at a time") {
  REQUIRE(rc::check([] {
    FieldBackend b = field_backend();
    const Sequence x = random_sequence();
    const FieldTensor whole = attend(b, x);
    std::vector<FieldTensor> chunks, single;
    for (Index t = 0; t < x.q.tokens; ++t) single.push_back(attend(b, tokens_of(x, t, 1)));
    for (Index t = 0; t < x.q.tokens;) {
      const Index n = *rc::gen::inRange<Index>(1, x.q.tokens - t + 1);
      chunks.push_back(attend(b, tokens_of(x, t, n)));
      t += n;
    }
    RC_ASSERT(joined(b, single, 0) == whole);
    RC_ASSERT(joined(b, chunks, 0) == whole);
  }));
}

TEST_CASE("attention: query heads read the kv head of their group") {
  FieldBackend b = field_backend();
  const Sequence x = sequence(spec_of(4, 2, 4, 3), 3);
  Sequence repeated = x;  // the kv heads written out for every query head
  repeated.spec.kv_heads = 4;
  const auto repeat = [&](const FieldTensor& kv, Index d, std::vector<Index> from) {
    std::vector<FieldTensor> parts;
    for (const Index head : from) parts.push_back(b.slice(kv, 1, head * d, d));
    return joined(b, parts, 1);
  };
  repeated.k = repeat(x.k, 4, {0, 0, 1, 1}), repeated.v = repeat(x.v, 3, {0, 0, 1, 1});
  CHECK(attend(b, repeated) == attend(b, x));
  repeated.k = repeat(x.k, 4, {0, 1, 0, 1}), repeated.v = repeat(x.v, 3, {0, 1, 0, 1});
  CHECK(attend(b, repeated) != attend(b, x));
}

TEST_CASE("attention: another scale, window, position, slope or sink is another value") {
  FieldBackend b = field_backend();
  AttentionSpec s = spec_of(4, 2, 4, 3);
  s.alibi = Alibi{4, 8};
  Sequence x = sequence(s, 6);
  x.sinks = b.input("sinks", 1, 4).values;
  const FieldTensor right = attend(b, x), past_first = b.slice(right, 0, 1, 5);
  const auto changed = [&](auto change) {
    Sequence wrong = x;
    change(wrong);
    return attend(b, wrong);
  };
  // the first token sees one key and the sink; its distance is 0, so no slope shows there
  const auto later = [&](auto change) { return b.slice(changed(change), 0, 1, 5); };
  CHECK(differ_everywhere(changed([](Sequence& w) { w.spec.scale_dim = 2; }), right));
  CHECK(differ_everywhere(later([](Sequence& w) { w.spec.alibi->first_head = 0; }), past_first));
  CHECK(differ_everywhere(later([](Sequence& w) { w.spec.alibi->total_heads = 4; }), past_first));
  CHECK(differ_everywhere(later([](Sequence& w) { w.spec.alibi.reset(); }), past_first));
  CHECK(differ_everywhere(changed([](Sequence& w) { w.sinks.clear(); }), right));
  CHECK(differ_everywhere(changed([](Sequence& w) {
                            std::rotate(w.sinks.begin(), w.sinks.begin() + 1, w.sinks.end());
                          }),
                          right));
  const FieldTensor windowed = changed([](Sequence& w) { w.spec.window = 4; });
  CHECK(b.slice(windowed, 0, 0, 4) == b.slice(right, 0, 0, 4));
  CHECK(differ_everywhere(b.slice(windowed, 0, 4, 2), b.slice(right, 0, 4, 2)));
  CHECK(changed([](Sequence& w) { w.spec.window = 6; }) == right);
}

TEST_CASE("attention: channels in another order inside the heads give the same average") {
  FieldBackend b = field_backend();
  const Sequence x = sequence(spec_of(2, 1, 3, 3), 4);
  const std::vector<Index> one{2, 0, 1}, two{2, 0, 1, 5, 3, 4};
  Sequence y = x;
  y.q = permuted(x.q, two), y.k = permuted(x.k, one), y.v = permuted(x.v, one);
  CHECK(attend(b, y) == permuted(attend(b, x), two));
  y.q = x.q;  // keys alone
  CHECK(attend(b, y) != permuted(attend(b, x), two));
}

TEST_CASE("attention: turned queries and keys keep the scores of permuted channels") {
  FieldBackend b = field_backend();
  const Sequence x = sequence(spec_of(2, 1, 4, 3), 3);
  const RopeSpec halves{.rotary_dim = 4};
  const RopeSpec neighbours{.rotary_dim = 4, .style = RopeStyle::interleaved};
  const auto turned = [&](const FieldTensor& q, const FieldTensor& k, const RopeSpec& spec) {
    Sequence y = x;
    y.q = b.rope(q, {0, 1, 2}, 4, spec), y.k = b.rope(k, {0, 1, 2}, 4, spec);
    return attend(b, y);
  };
  const FieldTensor q = permuted(x.q, {0, 2, 1, 3, 4, 6, 5, 7}), k = permuted(x.k, {0, 2, 1, 3});
  CHECK(turned(q, k, halves) == turned(x.q, x.k, neighbours));
  CHECK(turned(x.q, x.k, halves) != turned(x.q, x.k, neighbours));
}

TEST_CASE("attention: what does not fit is refused") {
  FieldBackend b = field_backend();
  const Sequence x = sequence(spec_of(4, 2, 4, 3), 3);
  const auto refused = [&](auto change) {
    Sequence wrong = x;
    change(wrong);
    CHECK_THROWS_AS(attend(b, wrong), LayoutError);
  };
  refused([](Sequence& w) { w.spec.kv_heads = 3; });
  refused([](Sequence& w) { w.spec.scale_dim = 0; });
  refused([](Sequence& w) { w.spec.first_position = 1; });
  refused([](Sequence& w) { w.spec.window = 0; });
  refused([](Sequence& w) { w.sinks = {1, 2, 3}; });
  refused([&](Sequence& w) {  // one key for two tokens would be position -1
    w.spec.first_position = -2;
    w.k = b.slice(w.k, 0, 0, 1), w.v = b.slice(w.v, 0, 0, 1);
  });
}

TEST_CASE("oracle: one call for each head, query and visible key is counted") {
  FieldBackend b = field_backend();
  AttentionSpec s = spec_of(4, 2, 4, 3);
  s.first_position = 2;
  Sequence x = sequence(s, 3);
  (void)attend(b, x);  // (3 + 4 + 5) keys, and the scale
  CHECK(b.counters().oracle_calls == 4U * 12 + 1);
  x.spec.window = 3, x.spec.alibi = Alibi{0, 4}, x.sinks = {1, 2, 3, 4};
  (void)attend(b, x);  // 3 keys each; 4 slopes and 4 sinks
  CHECK(b.counters().oracle_calls == 4U * 12 + 1 + 4 * 9 + 1 + 8);
}

/// E is 1 of one half of the field and -1 of the other.
struct OppositeOracle {
  explicit OppositeOracle(std::uint64_t) {}
  Element value(std::string_view, Element x) const { return gf61::reduce(x); }
  Element nonzero(std::string_view op, Element x) const {
    return op == "rsqrt" || x <= p / 2 ? 1 : p - 1;
  }
};

TEST_CASE("oracle: exponentials that add up to 0 ask for another seed") {
  BasicFieldBackend<OppositeOracle> b(std::make_shared<FieldContext>(), 0);
  Sequence x = sequence(spec_of(1, 1, 1, 1), 2);
  x.q.values = {1, 1};
  x.k.values = {1, p - 1};
  CHECK_THROWS_WITH(attend(b, x), "division by zero in the field (attention): draw another seed");
  CHECK_THROWS_AS(attend(b, x), Undefined);
  CHECK(attend(b, tokens_of(x, 0, 1)) == b.slice(x.v, 0, 0, 1));
  x.spec.window = 1;  // each token sees itself alone
  CHECK(attend(b, x) == x.v);
  x.sinks = {p - 1};
  CHECK_THROWS_AS(attend(b, x), Undefined);
}

TEST_CASE("oracle: a tanh whose sigmoid divides by 0 asks for another seed") {
  BasicFieldBackend<OppositeOracle> b(std::make_shared<FieldContext>(), 0);
  FieldTensor x(1, 64);  // half of the arguments have E = -1
  std::iota(x.values.begin(), x.values.end(), 1U);
  CHECK_THROWS_AS(b.gelu_tanh(x), Undefined);
  CHECK(b.gelu(x) == b.mul(x, x));  // Phi is this oracle's value
}

TEST_CASE("weakening: a softmax of the identity or of one fixed scale misses a wrong scale") {
  const auto sees = [](Weakening weakening) {
    FieldBackend b = field_backend(weakening);
    Sequence x = sequence(spec_of(2, 1, 4, 3), 3);
    const FieldTensor right = attend(b, x);
    x.spec.scale_dim = 2;
    return attend(b, x) != right;
  };
  CHECK(sees(Weakening::none));
  CHECK(sees(Weakening::rank_keyed_oracle));
  CHECK_FALSE(sees(Weakening::identity_oracle));
  CHECK_FALSE(sees(Weakening::fixed_scale));
}

TEST_CASE("weakening: an affine exponential weighs a mean of keys with the mean of their weights") {
  // The last of three keys is the mean of the others, so its weight is a third of all weights.
  const auto commutes = [](Weakening weakening) {
    FieldBackend b = field_backend(weakening);
    Sequence x = tokens_of(sequence(spec_of(1, 1, 2, 1), 3), 2, 1);
    for (Index c = 0; c < 2; ++c)
      x.k.row(2)[c] = gf61::mul(gf61::add(x.k.at(0, c), x.k.at(1, c)), gf61::inverse(2));
    x.v.values = {0, 0, 3};
    return attend(b, x).values == std::vector<Element>{1};
  };
  CHECK(commutes(Weakening::affine_oracle));
  CHECK_FALSE(commutes(Weakening::none));
}

TEST_CASE("weakening: attention keyed by rank differs between replicas") {
  for (const Weakening weakening : {Weakening::none, Weakening::rank_keyed_oracle}) {
    FieldBackend first = field_backend(weakening, 0), second = field_backend(weakening, 1);
    const Sequence x = sequence(spec_of(2, 1, 4, 3), 3);
    CHECK((attend(first, x) != attend(second, x)) == (weakening == Weakening::rank_keyed_oracle));
  }
}

#ifdef _OPENMP
TEST_CASE("attention: does not depend on the number of threads") {
  FieldBackend b = field_backend();
  const Sequence x = sequence(spec_of(4, 2, 16, 8), 90);
  REQUIRE(2 * detail::attention_queries * detail::attention_queries >= detail::parallel_calls);
  const int before = omp_get_max_threads();
  std::vector<FieldTensor> y;
  for (const int threads : {1, 2, 5}) {
    omp_set_num_threads(threads);
    y.push_back(attend(b, x));
  }
  omp_set_num_threads(before);
  CHECK(y[0] == y[1]);
  CHECK(y[0] == y[2]);
}
#endif

}  // namespace
}  // namespace tpsim::attention_field_tests
