// SPDX-License-Identifier: MIT
// The transition table in exact arithmetic: random tensors in the claimed states, and what the
// ranks' results denote.
#pragma once

#include <array>

#include <tests/support/transition_steps.hpp>

namespace tpsim::test {

/// What became of one claim on one draw.
enum class Happened : std::uint8_t { held, differed, unformed };

/// Random numbers that no other part of a draw uses.
class FieldNoise {
 public:
  explicit FieldNoise(std::uint64_t seed) : seed_(seed) {}
  [[nodiscard]] FieldTensor tensor(Index tokens, Index cols) {
    FieldTensor x(tokens, cols);
    for (gf61::Element& v : x.values) v = gf61::reduce(mix(seed_ + 0x9e3779b97f4a7c15U * ++draws_));
    return x;
  }

 private:
  std::uint64_t seed_, draws_ = 0;
};

/// One tensor a rank that together stand for x in this state, otherwise random.
[[nodiscard]] inline std::vector<FieldTensor> distribute(FieldBackend& b, const ShardState& state,
                                                         const Draw& d, const FieldTensor& x,
                                                         FieldNoise& noise) {
  std::vector<FieldTensor> out(static_cast<std::size_t>(d.tp), x);
  if (state.kind == StateKind::sharded)
    for (int r = 0; r < d.tp; ++r)
      out[static_cast<std::size_t>(r)] =
          select(b, x, state.dim, d.part(state, b.shape(x).dim(state.dim), r));
  if (state.kind == StateKind::partial) {
    const Rational c = factor(state, d);
    FieldTensor rest = scaled(b, x, Rational(c.den(), c.num()));
    for (std::size_t r = 1; r < out.size(); ++r) {
      out[r] = noise.tensor(x.tokens, x.cols);
      rest = add(b, rest, scaled(b, out[r], Rational(-1)));
    }
    out[0] = rest;
  }
  for (std::size_t r = 1; r < out.size(); ++r) {
    if (state.kind == StateKind::on_rank0) out[r] = FieldTensor(x.tokens, x.cols);
    if (state.kind == StateKind::root_only) out[r] = noise.tensor(x.tokens, x.cols);
  }
  return out;
}

/// Do the ranks' tensors stand for x in this state? Zero tolerance, every rank is looked at.
[[nodiscard]] inline bool denote(FieldBackend& b, const ShardState& state, const Draw& d,
                                 const std::vector<FieldTensor>& ranks, const FieldTensor& x) {
  const auto every = [&](auto expected) {
    for (int r = 0; r < d.tp; ++r)
      if (!(ranks[static_cast<std::size_t>(r)] == expected(r))) return false;
    return true;
  };
  switch (state.kind) {
    case StateKind::replicated:
      return every([&](int) { return x; });
    case StateKind::sharded:
      return every([&](int r) {
        return select(b, x, state.dim, d.part(state, b.shape(x).dim(state.dim), r));
      });
    case StateKind::on_rank0:
      return every([&](int r) { return r == 0 ? x : FieldTensor(x.tokens, x.cols); });
    case StateKind::root_only:
      return ranks[0] == x;
    case StateKind::partial: {
      FieldTensor sum(x.tokens, x.cols);
      for (const FieldTensor& t : ranks) {
        if (t.tokens != x.tokens || t.cols != x.cols) return false;
        sum = add(b, sum, t);
      }
      return scaled(b, sum, factor(state, d)) == x;
    }
    default:
      throw std::logic_error("no result is in this state");
  }
}

[[nodiscard]] inline Happened try_field(const Transition& row, const Draw& d) {
  const auto context = std::make_shared<FieldContext>(FieldContext{d.seed});
  FieldBackend full(context, -1);
  FieldNoise noise(mix(d.seed));
  const FieldTensor x = noise.tensor(d.tokens, d.n), y = noise.tensor(d.tokens, d.n);
  const auto xs = distribute(full, row.a, d, x, noise), ys = distribute(full, row.b, d, y, noise);
  std::vector<FieldTensor> out(xs.size());
  try {
    VirtualRanks world{d.tp};
    world.run([&](Communicator& comm) {
      const auto r = static_cast<std::size_t>(comm.rank());
      FieldBackend b(context, comm.rank());
      out[r] = rank_step(b, comm, row, d, xs[r], ys[r], held_parameter(b, row, d, comm.rank()));
    });
  } catch (const LayoutError&) {  // also a CollectiveMismatch
    return Happened::unformed;
  }
  return denote(full, row.result, d, out, full_step(full, row, d, x, y)) ? Happened::held
                                                                         : Happened::differed;
}

/// How often a claim held, differed and could not be formed.
struct Tally {
  int held = 0, differed = 0, unformed = 0;
  [[nodiscard]] int draws() const { return held + differed + unformed; }
  void count(Happened h) {
    ++(h == Happened::held ? held : h == Happened::differed ? differed : unformed);
  }
};
/// Legal: it held on all draws. Wrong: there is a witness. Unformed: it never ran.
[[nodiscard]] inline bool proves(const Tally& t, Verdict claim) {
  if (t.draws() == 0) return false;
  return claim == Verdict::legal      ? t.held == t.draws()
         : claim == Verdict::unformed ? t.unformed == t.draws()
                                      : t.differed > 0;
}

}  // namespace tpsim::test
