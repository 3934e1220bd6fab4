// SPDX-License-Identifier: MIT
// A module with heads but without attention: each query head times its kv head's k and v, then
// o_proj. KV replication, head pairing and the columns of o_proj all matter.
#pragma once

#include <tpsim/comm/fixed_rank.hpp>
#include <tpsim/layers/linear.hpp>
#include <tpsim/verify/module.hpp>

namespace stranger {

struct MixShape {
  tpsim::Index hidden = 0, head_dim = 0, groups = 0, heads_per_group = 0;
  std::string disk = {};  ///< order of a fused qkv_proj; "": q, k and v are separate
  [[nodiscard]] tpsim::Index heads() const { return groups * heads_per_group; }
  [[nodiscard]] tpsim::QkvShape qkv() const { return {hidden, head_dim, heads(), groups}; }
};

enum class MixFault {
  none,
  o_heads_strided,  ///< o_proj's columns are those of heads r, r + tp, ...
  k_head_modulo,    ///< with more ranks than groups, rank r takes k head r % groups
  pairs_modulo,     ///< all is loaded right, and local query head h reads kv head h % kv_heads
  no_sum,
  v_never_loaded,
  groups_permuted,  ///< no fault: q, k, v and o_proj all take the part of rank tp - 1 - r
};

template <tpsim::Backend B, MixFault fault = MixFault::none>
class GroupMix {
 public:
  using Tensor = typename B::Tensor;
  using Index = tpsim::Index;

  GroupMix(B& b, tpsim::Communicator& tp, const MixShape& s)
      : b_(b),
        tp_(tp),
        s_(s),
        part_(fault == MixFault::groups_permuted ? tp.size() - 1 - tp.rank() : tp.rank(),
              tp.size()),
        qkv_(b, part_, s.qkv()),
        o_(b, tp, s.heads() * s.head_dim, s.hidden, {.reduce_results = fault != MixFault::no_sum}) {
  }

  tpsim::Params<B> params() {
    return {{"qkv_proj.weight", &qkv_.weight}, {"o_proj.weight", &o_.weight}};
  }
  void load(const std::string& name, const tpsim::FullTensor& t, const tpsim::RowLayout& rows) {
    if (name == "o_proj.weight") return load_o(t);
    if (name == "qkv_proj.weight") return qkv_.weight_loader(qkv_.weight, t, rows);
    if (fault == MixFault::v_never_loaded && name == "v_proj.weight") return;
    if (fault == MixFault::k_head_modulo && name == "k_proj.weight") {
      const Index mine = qkv_.num_kv_heads() * s_.head_dim, parts = s_.groups / qkv_.num_kv_heads();
      return b_.copy(qkv_.weight, 0, qkv_.num_heads() * s_.head_dim, t, tp_.rank() % parts * mine,
                     mine);
    }
    qkv_.weight_loader(qkv_.weight, t, name.substr(0, 1));
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = qkv_.forward(x);  // [tokens, q heads | k heads | v heads] of this rank
    const Index d = s_.head_dim, heads = qkv_.num_heads(), kv_heads = qkv_.num_kv_heads();
    std::vector<Tensor> mixed;
    for (Index h = 0; h < heads; ++h) {
      const Index kv = fault == MixFault::pairs_modulo ? h % kv_heads : h / (heads / kv_heads);
      const Tensor q = b_.slice(y, 1, h * d, d), k = b_.slice(y, 1, (heads + kv) * d, d),
                   v = b_.slice(y, 1, (heads + kv_heads + kv) * d, d);
      mixed.push_back(b_.mul(b_.mul(q, k), v));
    }
    return o_.forward(join_columns(b_, mixed));
  }

  static Tensor full(B& b, const Tensor& x, const tpsim::FullParams<B>& t, const MixShape& s) {
    const Tensor q = full_linear(b, x, t, "q_proj."), k = full_linear(b, x, t, "k_proj."),
                 v = full_linear(b, x, t, "v_proj.");
    std::vector<Tensor> mixed;
    for (Index h = 0; h < s.heads(); ++h) {
      const Index head = h * s.head_dim, kv = h / s.heads_per_group * s.head_dim;
      mixed.push_back(b.mul(b.mul(b.slice(q, 1, head, s.head_dim), b.slice(k, 1, kv, s.head_dim)),
                            b.slice(v, 1, kv, s.head_dim)));
    }
    return full_linear(b, join_columns(b, mixed), t, "o_proj.");
  }

 private:
  void load_o(const tpsim::FullTensor& t) {
    const Index d = s_.head_dim, heads = qkv_.num_heads();
    for (Index j = 0; j < heads; ++j) {
      const Index head = fault == MixFault::o_heads_strided ? j * tp_.size() + tp_.rank()
                                                            : part_.rank() * heads + j;
      b_.copy(o_.weight, 1, j * d, t, head * d, d);
    }
  }

  B& b_;
  tpsim::Communicator& tp_;
  MixShape s_;
  tpsim::FixedRank part_;  ///< which part of the heads this rank takes
  tpsim::QKVParallelLinear<B> qkv_;
  tpsim::RowParallelLinear<B> o_;
};

template <MixFault fault = MixFault::none>
struct GroupMixModule {
  template <class B>
  using Rank = GroupMix<B, fault>;
  static tpsim::Plan plan(const MixShape& s) {
    tpsim::Plan plan{
        .name = "group_mix",
        .axes = {{"H", s.hidden}, {"kv", s.groups}, {"g", s.heads_per_group}, {"d", s.head_dim}},
        .input = "H",
        .outputs = {"H"}};
    if (s.disk.empty())
      plan.tensors = {{"q_proj.weight", "q:kv*g*d", "H", "column", "kv*g even", "qkv_proj"},
                      {"k_proj.weight", "k:kv*d", "H", "column", "kv replicated", "qkv_proj"},
                      {"v_proj.weight", "v:kv*d", "H", "column", "kv replicated", "qkv_proj"}};
    else
      plan.tensors = {{"qkv_proj.weight", s.disk, "H", "column",
                       "q:kv*g even, k:kv replicated, v:kv replicated"}};
    plan.tensors.push_back({"o_proj.weight", "H", "kv*g*d", "row", "kv*g even"});
    return plan;
  }
};

}  // namespace stranger
