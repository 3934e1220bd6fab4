// SPDX-License-Identifier: MIT
// A decoder on the ranks of a world with real weights: prefill, then greedy tokens through the KV
// cache.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <tpsim/backend/eigen/eigen_backend.hpp>
#include <tpsim/checkpoint/load_model.hpp>
#include <tpsim/comm/rank_world.hpp>
#include <tpsim/verify/fetch.hpp>

namespace tpsim::cli {

/// A model with its weights, and how it is computed.
struct DecoderSource {
  const BoundModel* model = nullptr;
  const StoredModel* stored = nullptr;
  DType rule = DType::f32;
  ReduceOrder order = ReduceOrder::rank;
  bool tf32 = false;

  [[nodiscard]] EigenOptions options(bool track_bounds) const {
    EigenOptions o;
    o.track_bounds = track_bounds;
    o.order = order;
    o.tf32 = tf32;
    return o;
  }
};

/// What one step computes: the prompt, then one token each.
struct DecoderStep {
  Index past = 0;
  std::vector<Index> ids;
  [[nodiscard]] Batch batch() const { return Batch({{0, past, static_cast<Index>(ids.size())}}); }
};

/// The communicator that a rank's layers keep, whatever run of the world they are in.
class RankPort final : public Communicator {
 public:
  RankPort(int rank, int size) : rank_(rank), size_(size) {}
  /// From now on `world`, which lives as long as it is used.
  void connect(Communicator& world) { world_ = &world; }
  /// How many collectives this rank has called.
  [[nodiscard]] Index calls() const { return calls_; }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string_view group() const override { return world_->group(); }
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key, Site at) override {
    ++calls_;
    return world_->split(color, key, at);
  }

 private:
  void run(const Call& call) override {
    ++calls_;
    forward_to(*world_, call);
  }
  int rank_, size_;
  Communicator* world_ = nullptr;
  Index calls_ = 0;
};

/// A rank's decoder, from run to run.
template <class B>
struct RankNet {
  RankNet(int rank, int size, const DecoderSource& from, EigenOptions options)
      : port(rank, size), b(rank, from.rule, options), net(b, port, from.model->shape) {
    load_model(net, *from.model, *from.stored);
  }
  RankPort port;
  B b;
  CausalLM<B> net;
};

/// What a run gave.
template <class B>
struct Decoded {
  std::vector<DecoderStep> steps;
  std::vector<typename B::Tensor> logits;  ///< [choice]: [1, vocab]; of the root
  std::vector<Index> chosen;               ///< the id of the largest logit; of the root
  std::vector<Trace> collectives;          ///< [step]
  std::vector<Index> weight_bytes;         ///< [rank]; of the root
  /// [rank]: null where the rank lives in another process
  std::vector<std::unique_ptr<RankNet<B>>> nets;
};

/// The first of the largest.
template <class Real>
[[nodiscard]] Index largest_logit(const eigen::Matrix<Real>& row) {
  Index best = 0;
  for (Index c = 1; c < row.cols(); ++c)
    if (row(0, c) > row(0, best)) best = c;
  return best;
}

/// @param generate  how many tokens to choose; the last one is not fed
/// @param forced    non-empty: the tokens that follow the prompt, [generate - 1] or more; they are
///   fed all at once
/// @throws LayoutError as CausalLM and load_model
template <class B>
[[nodiscard]] Decoded<B> decode(RankWorld& world, const DecoderSource& from,
                                const std::vector<Index>& prompt, Index generate,
                                const std::vector<Index>& forced = {}) {
  Decoded<B> out;
  out.nets.resize(static_cast<std::size_t>(world.size()));
  out.weight_bytes.assign(out.nets.size(), 0);
  std::vector<std::pair<Index, Index>> calls;  // [step]: of rank 0, before and after
  world.run([&](Communicator& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    // Through all layers of a float type a bound is past use; a stage has its own.
    out.nets[r] = std::make_unique<RankNet<B>>(comm.rank(), comm.size(), from,
                                               from.options(from.rule == DType::f64));
    RankNet<B>& mine = *out.nets[r];
    mine.port.connect(comm);
    mine.net.for_each_layer([&](const std::string& prefix, auto& layer) {
      for_each_param(prefix, layer, [&](const std::string&, const typename B::Param& w) {
        out.weight_bytes[r] += mine.b.shape(w).size() * bytes_of(mine.b.dtype(w));
      });
    });
    auto caches = mine.net.make_caches();
    DecoderStep step{0, prompt};
    const auto wanted = static_cast<std::size_t>(std::max<Index>(generate, 1));
    for (std::size_t turn = 0, choices = 0; choices < wanted; ++turn) {
      const Index before = mine.port.calls();
      const bool prefill = step.past == 0;
      auto logits = mine.net.forward(step.ids, step.batch(), caches,
                                     prefill ? LogitsOf::last_tokens : LogitsOf::all_tokens);
      Met said;
      if (comm.rank() == 0) {
        calls.emplace_back(before, mine.port.calls());
        fetch_from(mine.b, logits.value());
        for (Index row = 0; row < logits->value.rows(); ++row) {
          out.logits.push_back(mine.b.slice(*logits, 0, row, 1));
          fetch_from(mine.b, out.logits.back());
          out.chosen.push_back(largest_logit(out.logits.back().value));
        }
        said.value = out.chosen.back();
      }
      const Index best = world.meet(comm, said).value;
      if (out.steps.size() == turn) out.steps.push_back(step);  // the first rank of this process
      choices += prefill ? 1 : step.ids.size();
      step.past += static_cast<Index>(step.ids.size());
      if (forced.empty())
        step.ids = {best};
      else
        step.ids.assign(forced.begin(), forced.begin() + static_cast<std::ptrdiff_t>(wanted) - 1);
    }
  });
  const Trace& trace = world.trace();
  for (const auto& [begin, end] : calls)
    out.collectives.emplace_back(trace.begin() + begin, trace.begin() + end);
  const std::vector<Bytes> all =
      world.bring(std::as_bytes(std::span<const Index>(out.weight_bytes)));
  for (std::size_t p = 1; p < all.size(); ++p)
    for (std::size_t r = 0; r < out.weight_bytes.size(); ++r) {
      Index theirs = 0;
      std::memcpy(&theirs, all[p].data() + r * sizeof theirs, sizeof theirs);
      out.weight_bytes[r] += theirs;
    }
  return out;
}

}  // namespace tpsim::cli
