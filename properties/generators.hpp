// SPDX-License-Identifier: MIT
// Random legal and illegal layers. Every choice is a number that counts up from the smallest
// layer, so that shrinking ends there: tp 2, one head or row a rank, sizes of 1, no option.
#pragma once

#include <rapidcheck.h>

#include <type_traits>
#include <vector>

#include <properties/broken_rules.hpp>
#include <properties/case.hpp>
#include <properties/disk_orders.hpp>

namespace tpsim::properties {
namespace detail {

/// The numbers that a case is made from, each below its own limit, 0 the simplest. The first time
/// they are drawn; a shrunk case is made again from fewer or smaller ones.
class Draws {
 public:
  explicit Draws(const rc::Random& random) : random_(random) {}
  explicit Draws(std::vector<int> numbers) : numbers_(std::move(numbers)), given_(true) {}

  int below(int n) {
    if (next_ == numbers_.size())
      numbers_.push_back(given_ ? 0 : static_cast<int>(random_.next() % static_cast<unsigned>(n)));
    return std::min(numbers_[next_++], n - 1);  // an earlier choice may have left fewer
  }
  Index from_one(int most) { return 1 + below(most); }
  bool flag() { return below(2) == 1; }
  template <class T>
  const T& one_of(const std::vector<T>& all) {
    return all[static_cast<std::size_t>(below(static_cast<int>(all.size())))];
  }
  [[nodiscard]] const std::vector<int>& numbers() const { return numbers_; }

 private:
  rc::Random random_;
  std::vector<int> numbers_;
  std::size_t next_ = 0;
  bool given_ = false;
};

/// Shrinks every number towards 0, again and again, until none can be made smaller. (gen::element
/// does not shrink; gen::exec goes through the numbers once, so that heads and tp, which move
/// together, stop too early.)
template <class Make>
[[nodiscard]] rc::Gen<std::invoke_result_t<Make&, Draws&>> drawn(Make make) {
  return [make](const rc::Random& random, int /*size*/) {
    Draws first(random);
    (void)make(first);
    const auto smaller = [](const std::vector<int>& numbers) {
      return rc::shrink::eachElement(numbers, [](int n) { return rc::shrink::towards(n, 0); });
    };
    return rc::shrinkable::map(rc::shrinkable::shrinkRecur(first.numbers(), smaller),
                               [make](std::vector<int> numbers) {
                                 Draws again(std::move(numbers));
                                 return make(again);
                               });
  };
}

/// tp sizes from the smallest that shows anything; 1 comes last.
[[nodiscard]] inline int draw_tp(Draws& d) {
  static const std::vector<int> sizes{2, 3, 4, 6, 8, 5, 1};
  return d.one_of(sizes);
}

/// Three in five: more ranks than kv heads, so that neighbours share one.
inline void draw_heads(Draws& d, QkvShape& q, int tp) {
  const int choice = d.below(5);
  std::vector<Index> fewer;  // kv heads that tp goes round, most first
  for (Index kv = tp - 1; kv > 0; --kv)
    if (tp % kv == 0) fewer.push_back(kv);
  if (choice < 2 || fewer.empty())
    q.kv_heads = tp * (choice % 2 + 1);
  else
    q.kv_heads = fewer[static_cast<std::size_t>(choice - 2) % fewer.size()];
  q.heads = std::max<Index>(tp, q.kv_heads) * d.from_one(3);
}

inline void draw_parts(Draws& d, LayerSpec& s) {
  const int count = d.below(3) + 2;
  for (int k = 0; k < 4; ++k) {
    // As the command line names them.
    const std::string name = count == 2 ? (k == 0 ? "gate" : "up") : "p" + std::to_string(k);
    const Index rows = s.tp * d.from_one(3);
    if (k < count) s.parts.push_back({name, rows});
  }
}

/// A vocabulary that fills its rows, one whose last rank has padding, ranks of padding alone.
inline void draw_vocab(Draws& d, LayerSpec& s) {
  const Index even = s.tp * d.from_one(4);
  switch (d.below(3)) {
    case 0:
      s.vocab = even;
      break;
    case 1:  // a multiple of tp and of nothing that an engine takes
      s.vocab_cut = "padded(" + std::to_string(s.tp * d.from_one(3)) + ")";
      s.vocab = d.from_one(40);
      break;
    default:
      s.vocab_cut = "padded(" + std::to_string(d.from_one(4)) + "*tp)";
      s.vocab = d.from_one(40);
  }
  if (s.vocab_cut != "even" && d.flag()) s.vocab_cut += " last";
  s.tied = s.layer == "lm_head" && d.flag();
}

/// Any kind of norm, MLP and attention, in steps of any size.
inline void draw_decoder(Draws& d, LayerSpec& s) {
  static const std::vector<Activation> activations{Activation::silu, Activation::gelu,
                                                   Activation::gelu_tanh};
  static const std::vector<NormKind> norms{NormKind::rms, NormKind::layer,
                                           NormKind::layer_without_bias};
  static const std::vector<QkNorm> qk_norms{QkNorm::none, QkNorm::per_head, QkNorm::full_width};
  draw_heads(d, s.qkv, s.tp);
  s.qkv.head_dim = d.from_one(4);
  s.qkv.v_head_dim = s.layer == "norm" ? 0 : d.below(4);
  s.qkv.hidden = d.from_one(8);
  s.intermediate = s.tp * d.from_one(3);
  AttentionShape& a = s.decoder.attention;
  s.decoder.norm = d.one_of(norms);
  a.qk_norm = d.one_of(qk_norms);
  if (s.layer == "norm") return;
  s.tokens = d.from_one(7);
  if (const Index pairs = d.below(static_cast<int>(s.qkv.head_dim / 2) + 1); pairs > 0) {
    a.rope = RopeSpec{2 * pairs};
    if (d.flag()) a.rope->style = RopeStyle::interleaved;
  }
  if (const Index window = d.below(4); window > 0) a.window = window;
  a.alibi = d.flag();
  a.sinks = d.flag();
  s.decoder.gated = !d.flag();
  s.decoder.activation = d.one_of(activations);
  s.decoder.parallel_residual = s.layer == "decoder" && d.flag();
  s.chunk = d.below(4);
}

[[nodiscard]] inline LayerSpec draw_legal(Draws& d, const std::string& layer) {
  LayerSpec s;
  s.layer = layer;
  s.tp = draw_tp(d);
  s.tokens = d.from_one(4);
  if (layer == "qkv") {
    draw_heads(d, s.qkv, s.tp);
    s.qkv.head_dim = d.from_one(3);
    s.qkv.v_head_dim = d.below(4);  // 0: as head_dim
    s.qkv.hidden = d.from_one(8);
  } else if (layer == "mlp") {
    s.qkv.hidden = d.from_one(8);
    s.intermediate = s.tp * d.from_one(4);
  } else if (layer == "merged") {
    s.in = d.from_one(8);
    draw_parts(d, s);
  } else if (is_vocab_layer(layer)) {
    s.qkv.hidden = d.from_one(8);
    draw_vocab(d, s);
  } else if (is_decoder_layer(layer)) {
    draw_decoder(d, s);
  } else {
    s.in = d.from_one(8) * (layer == "row" ? s.tp : 1);
    s.out = d.from_one(8) * (layer == "column" ? s.tp : 1);
  }
  s.bias = layer != "embedding" && layer != "norm" && d.flag();
  if (layer != "mlp" && !is_vocab_layer(layer) && !is_decoder_layer(layer))
    s.skip_bias_add = d.flag();
  if (layer == "lm_head") {
    s.gather_output = d.flag();
    s.argmax = !s.gather_output && d.flag();
    s.last_token = d.flag();
  } else if (layer == "column" || layer == "merged") {
    // Together with skip_bias_add a gathered bias is refused.
    s.gather_output = d.flag() && !(s.bias && s.skip_bias_add);
  } else if (layer == "row") {
    s.input_is_parallel = !d.flag();
    s.reduce_results = !(d.flag() && (!s.bias || s.skip_bias_add));
  }
  const std::vector<DiskOrder> orders = disk_orders(s);
  if (const int order = d.below(static_cast<int>(orders.size()) + 1); order > 0)
    s.disk = orders[static_cast<std::size_t>(order) - 1].expression;
  return s;
}

/// 1, 2, ..., 6, then what is never legal.
[[nodiscard]] inline Index any_size(Draws& d) {
  static const std::vector<Index> sizes{1, 2, 3, 4, 5, 6, 0, -1};
  return d.one_of(sizes);
}

[[nodiscard]] inline LayerSpec draw_any(Draws& d, const std::string& layer) {
  static const std::vector<int> tp_sizes{2, 1, 3, 4, 5, 6, 0, -1};
  LayerSpec s;
  s.layer = layer;
  s.tp = d.one_of(tp_sizes);
  s.tokens = any_size(d);
  if (layer == "qkv") {
    s.qkv.heads = any_size(d);
    s.qkv.kv_heads = any_size(d);
    s.qkv.head_dim = any_size(d);
    s.qkv.hidden = any_size(d);
    s.qkv.v_head_dim = d.one_of(std::vector<Index>{0, 1, 2, -1});
  } else if (layer == "mlp") {
    s.qkv.hidden = any_size(d);
    s.intermediate = any_size(d);
  } else if (is_vocab_layer(layer)) {
    static const std::vector<std::string> cuts{"even",       "padded(4)", "padded(3*tp)",  "chunk",
                                               "replicated", "block(2)",  "padded(2) last"};
    s.vocab = any_size(d);
    s.qkv.hidden = any_size(d);
    s.vocab_cut = d.one_of(cuts);
  } else if (is_decoder_layer(layer)) {
    static const std::vector<std::optional<Index>> windows{std::nullopt, 1, 2, 0, -1};
    s.qkv = {any_size(d), any_size(d), any_size(d), any_size(d),
             d.one_of(std::vector<Index>{0, 1, 2, -1})};
    s.intermediate = any_size(d);
    AttentionShape& a = s.decoder.attention;
    if (d.flag()) a.rope = RopeSpec{any_size(d)};
    a.window = d.one_of(windows);
    if (d.flag()) a.qk_norm = QkNorm::full_width;
    s.chunk = 3 - d.below(5);
  } else {
    s.in = any_size(d);
    s.out = any_size(d);
    const int parts = layer == "merged" ? 3 - d.below(4) : 0;
    for (int k = 0; k < 3; ++k) {
      const MergedPart part{"p" + std::to_string(d.below(4) == 3 ? 0 : k), any_size(d)};
      if (k < parts) s.parts.push_back(part);
    }
  }
  s.bias = layer != "embedding" && layer != "norm" && d.flag();
  if (layer != "mlp" && !is_vocab_layer(layer) && !is_decoder_layer(layer))
    s.skip_bias_add = d.flag();
  s.gather_output = (layer == "column" || layer == "merged") && d.flag();
  s.reduce_results = layer != "row" || !d.flag();
  return s;
}

[[nodiscard]] inline Case with_numbers(Draws& d, LayerSpec s) {
  static const std::vector<DType> types{DType::f32, DType::bf16, DType::f16};
  Case c{std::move(s)};
  c.dtype = d.one_of(types);
  c.seed = static_cast<std::uint64_t>(1 + d.below(1000));
  return c;
}

}  // namespace detail

/// A legal layer of this name with any of its options, from fused tensors in every order.
/// @post violations(spec) is empty; nothing is discarded
[[nodiscard]] inline rc::Gen<Case> legal_cases(const std::string& layer) {
  return detail::drawn(
      [layer](detail::Draws& d) { return detail::with_numbers(d, detail::draw_legal(d, layer)); });
}

/// A legal layer of any name; those with more shapes come more often.
[[nodiscard]] inline rc::Gen<Case> legal_cases() {
  return detail::drawn([](detail::Draws& d) {
    static const std::vector<std::string> names{"column", "row",    "replicated", "mlp", "merged",
                                                "merged", "merged", "qkv",        "qkv", "qkv"};
    return detail::with_numbers(d, detail::draw_legal(d, d.one_of(names)));
  });
}

/// A layer that breaks at least one rule, often several.
/// @post broken_rules(spec) is not empty
[[nodiscard]] inline rc::Gen<Case> illegal_cases(const std::string& layer) {
  return rc::gen::suchThat(
      detail::drawn([layer](detail::Draws& d) { return Case{detail::draw_any(d, layer)}; }),
      [](const Case& c) { return !broken_rules(c.spec).empty(); });
}

}  // namespace tpsim::properties
