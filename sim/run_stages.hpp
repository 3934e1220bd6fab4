// SPDX-License-Identifier: MIT
// A decoder stage by stage: embedding, each layer, norm and head, every one fed the stream of the
// unsharded model in f64 on the same tokens, so that no bound passes from stage to stage.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tpsim/verify/rounding_reading.hpp>

#include "sim/run_decoder.hpp"

namespace tpsim::cli {

/// How the ranks' results of one stage lie to the unsharded model: what they return, and what each
/// of their linear layers would have been given.
struct RunStage {
  std::string name;                     ///< "embedding", "layer 0", "norm and head"
  Index compared = 0;                   ///< elements
  Index outside = 0;                    ///< of them, further away than their bound, or not finite
  Index unbounded = 0;                  ///< of them, without a finite bound: they tell nothing
  Index copies = 0, unequal = 0;        ///< elements compared with rank 0's, and not bit-equal
  std::optional<double> largest_ratio;  ///< of |difference| to bound, where that is finite
  double largest_difference = 0;
  OutputPlace at;  ///< of the largest ratio, or of the first element that is not finite
  [[nodiscard]] bool passed() const { return outside == 0 && unequal == 0; }
};

/// Rows and columns of a tensor, with their bounds.
[[nodiscard]] inline eigen::Tensor<double> block_of(const eigen::Tensor<double>& x, Index row,
                                                    Index rows, Index col, Index cols) {
  eigen::Tensor<double> out;
  out.value = x.value.block(row, col, rows, cols);
  if (x.has_bound()) out.bound = x.bound.block(row, col, rows, cols);
  return out;
}

/// The numbers of other comparisons of the same stage.
inline void add_stage(RunStage& all, const RunStage& more) {
  const bool lost = more.outside > 0 && !more.largest_ratio;  // its place is of what is not finite
  if ((lost && all.outside == 0) ||
      more.largest_ratio.value_or(-1) > all.largest_ratio.value_or(-1))
    all.at = more.at;
  if (more.largest_ratio.value_or(-1) > all.largest_ratio.value_or(-1))
    all.largest_ratio = more.largest_ratio;
  all.compared += more.compared, all.outside += more.outside, all.unbounded += more.unbounded;
  all.largest_difference = std::max(all.largest_difference, more.largest_difference);
}

/// The numbers of `have` against `wanted`; bounds of both are added.
/// @param first  place of element (0, 0)
template <class Real>
void compare_stage(RunStage& stage, const OutputPlace& first, const eigen::Tensor<Real>& have,
                   const eigen::Tensor<double>& wanted) {
  const tpsim::detail::BoundFigures f = tpsim::detail::measure(have, wanted);
  const auto place = [&](Index token, Index column) {
    OutputPlace at = first;
    at.token += token, at.column = column;
    return at;
  };
  stage.compared += wanted.value.size();
  stage.unbounded += f.unbounded;
  stage.largest_difference = std::max(stage.largest_difference, f.difference);
  if (f.not_finite > 0 && stage.outside == 0)
    stage.at = place(f.first_lost->first, f.first_lost->second);
  else if (f.ratio >= 0 && f.ratio > stage.largest_ratio.value_or(-1))
    stage.at = place(f.token, f.col);
  if (f.ratio >= 0) stage.largest_ratio = std::max(f.ratio, stage.largest_ratio.value_or(-1));
  stage.outside += f.not_finite + f.outside;
}

/// What goes into each stage of the unsharded model and comes out.
struct RunStreams {
  using Tensor = EigenBackend<double>::Tensor;
  /// Of layer i, or with i the number of layers of the norm: [tokens, hidden].
  std::vector<Tensor> inputs;
  /// Of the embedding (0), layer i - 1, the head last; where the ranks are judged.
  std::vector<Tensor> outputs;
  /// [stage]: inputs of its linear products, in the order of full(); each product was given its
  /// input rounded to the dtype.
  std::vector<std::vector<Tensor>> products;

  /// From the root to all processes: all but the outputs.
  void share(RankWorld& world) {
    ByteWriter w;
    if (world.is_root()) {
      put(w, inputs);
      w.put(products.size());
      for (const std::vector<Tensor>& each : products) put(w, each);
    }
    const Bytes bytes = world.share(std::move(w.bytes));
    if (world.is_root()) return;
    ByteReader r(bytes);
    inputs = get(r);
    for (auto n = r.get<std::size_t>(); n > 0; --n) products.push_back(get(r));
  }

 private:
  static void put(ByteWriter& w, const std::vector<Tensor>& tensors) {
    w.put(tensors.size());
    for (const Tensor& t : tensors) w.put_all(std::span<const std::byte>(eigen::pack(t)));
  }
  static std::vector<Tensor> get(ByteReader& r) {
    std::vector<Tensor> out;
    for (auto n = r.get<std::size_t>(); n > 0; --n)
      out.push_back(eigen::unpack<double>(r.get_vector<std::byte>()));
    return out;
  }
};

/// The unsharded model, full() in f64 on whole sequences.
class RunReference {
 public:
  using Backend = EigenBackend<double>;
  using Tensor = Backend::Tensor;

  RunReference(const RunReference&) = delete;  // the backend's hook has its address
  RunReference& operator=(const RunReference&) = delete;
  RunReference(const DecoderSource& from, const std::vector<Index>& ids)
      : from_(from), b_(0, from.rule, from.options(true)) {
    const CausalLMShape& s = from.model->shape;
    const std::vector<Index> lengths{static_cast<Index>(ids.size())};
    FullParams<Backend> outside = params(std::nullopt);
    // What the next stage is given is rounded to the dtype, and exact from there on.
    const auto keep = [&](Tensor y) {
      streams_.inputs.push_back(b_.input(y.value));
      streams_.outputs.push_back(std::move(y));
      streams_.products.emplace_back();
    };
    streams_.products.emplace_back();  // of the stage that comes next
    b_.set_stage_input([this](std::size_t, const Tensor& x) {
      streams_.products.back().push_back(x);
      return b_.input(x.value);
    });
    keep(VocabParallelEmbedding<Backend>::full(b_, ids, outside.at("embed_tokens.weight")));
    for (std::size_t i = 0; i < s.layers.size(); ++i) {
      const auto layer = static_cast<Index>(i);
      keep(DecoderLayer<Backend>::full(b_, streams_.inputs.back(), lengths, params(layer),
                                       s.layers[i], "layers." + std::to_string(layer) + "."));
    }
    const Tensor y =
        StreamNorm<Backend>::full(b_, streams_.inputs.back(), s.norm, s.norm_eps, outside, "norm.");
    const char* head = s.tied ? "embed_tokens.weight" : "lm_head.weight";
    streams_.outputs.push_back(ParallelLMHead<Backend>::full(
        b_, y, outside.at(head), s.head_bias ? &outside.at("lm_head.bias") : nullptr));
  }
  [[nodiscard]] RunStreams take() && { return std::move(streams_); }

 private:
  /// The logical tensors of one layer, or of what is outside the layers, whole.
  [[nodiscard]] FullParams<Backend> params(std::optional<Index> layer) const {
    FullParams<Backend> out;
    for (std::size_t i = 0; i < from_.model->tensors.size(); ++i) {
      const ModelTensor& t = from_.model->tensors[i];
      const auto& stored = from_.stored->at(i);
      if (t.layer != layer || stored == nullptr) continue;
      for (std::size_t k = 0; k < t.bound->parts.size(); ++k) {
        const Runs& rows = t.bound->layout.parts()[k].disk_rows;
        auto param = b_.empty(t.logical(k), t.bound->shape_of(rows.size()));
        b_.copy(param, 0, 0, FullTensor(stored, rows), 0, rows.size());
        out.emplace(t.logical(k), std::move(param));
      }
    }
    return out;
  }

  DecoderSource from_;
  Backend b_;
  RunStreams streams_;
};

/// A linear layer of a rank: its name, and which product of full() has its input.
struct RunLinear {
  const char* name;
  std::size_t product;
};
/// In the order of their calls: full() multiplies q, k, v, o, gate, up, down one by one.
[[nodiscard]] inline std::vector<RunLinear> linears_of(const DecoderShape& s) {
  if (s.gated) return {{"qkv_proj", 0}, {"o_proj", 3}, {"gate_up_proj", 4}, {"down_proj", 6}};
  return {{"qkv_proj", 0}, {"o_proj", 3}, {"up_proj", 4}, {"down_proj", 5}};
}

/// The numbers of B and its tensors as the host knows them.
template <class B>
using RealOf = std::remove_cvref_t<decltype(std::declval<typename B::Tensor>().value(0, 0))>;
template <class B>
using HostTensor = eigen::Tensor<RealOf<B>>;

/// What a rank did in one stage: its linear layers' inputs compared, and what it returned.
template <class B>
struct RankStage {
  RunStage inputs;
  std::optional<HostTensor<B>> result;
};

/// Runs every stage of a rank's decoder on the streams of the unsharded model, in the steps of a
/// run, with caches of its own. Its linear layers are given the streams' inputs, so that no bound
/// passes through the functions between them.
template <class B>
class StageRun {
 public:
  using Tensor = typename B::Tensor;

  StageRun(const RunStreams& streams, const CausalLMShape& shape)
      : streams_(&streams), shape_(&shape) {}

  /// @return [stage]
  [[nodiscard]] std::vector<RankStage<B>> operator()(RankNet<B>& rank,
                                                     const std::vector<DecoderStep>& steps) const {
    EigenOptions tracked = rank.b.options();
    tracked.track_bounds = true;
    rank.b = B(rank.port.rank(), rank.b.rule(), tracked);  // the layers go on using it
    auto caches = rank.net.make_caches();
    std::vector<RankStage<B>> out(rank.net.layers.size() + 2);
    for (std::size_t stage = 0; stage < out.size(); ++stage) {
      std::vector<Tensor> parts;
      for (const DecoderStep& step : steps) {
        feed(rank.port.rank(), rank.b, stage, step, out[stage].inputs);
        if (auto y = one(rank.b, rank.net, stage, step, caches)) parts.push_back(std::move(*y));
        rank.b.set_stage_input(nullptr);
      }
      if (parts.empty()) continue;
      Tensor joined = join_tokens(rank.b, std::move(parts));
      fetch_from(rank.b, joined);
      out[stage].result = std::move(joined);
    }
    return out;
  }

 private:
  /// Compares what comes to each linear layer, and puts the reference's numbers in its place.
  void feed(int rank, B& b, std::size_t stage, const DecoderStep& step, RunStage& now) const {
    if (stage == 0) return;
    const std::vector<RunLinear> linears = stage > shape_->layers.size()
                                               ? std::vector<RunLinear>{{"lm_head", 0}}
                                               : linears_of(shape_->layers[stage - 1]);
    b.set_stage_input(
        [this, rank, &b, &now, stage, &step, linears](std::size_t call, const Tensor& x) {
          if (call >= linears.size()) return x;
          const auto& product = streams_->products.at(stage).at(linears[call].product);
          // Whole on every rank, or cut evenly: its heads, its part of the intermediate.
          const Index cols = x.value.cols(), rows = x.value.rows();
          const Index col = cols == product.value.cols() ? 0 : rank * cols;
          if (col + cols > product.value.cols() || rows != static_cast<Index>(step.ids.size()))
            return x;
          const eigen::Tensor<double> wanted = block_of(product, step.past, rows, col, cols);
          compare_stage(now, {rank, std::string(linears[call].name) + " input", {}, step.past, 0},
                        x, wanted);
          return b.input(wanted.value);
        });
  }
  [[nodiscard]] std::optional<Tensor> one(B& b, CausalLM<B>& net, std::size_t stage,
                                          const DecoderStep& step,
                                          typename CausalLM<B>::Caches& caches) const {
    if (stage == 0) return net.embed_tokens.forward(step.ids);
    const eigen::Tensor<double>& whole = streams_->inputs.at(stage - 1);
    Tensor x = b.input(
        block_of(whole, step.past, static_cast<Index>(step.ids.size()), 0, whole.value.cols())
            .value);
    if (stage > net.layers.size()) return net.lm_head->forward(net.norm.forward(x));
    return settled(b,
                   net.layers[stage - 1]->forward({std::move(x)}, step.batch(), caches[stage - 1]));
  }

  const RunStreams* streams_;
  const CausalLMShape* shape_;
};

/// The stages of all ranks, against the unsharded model and each other.
template <class B>
class StageReport {
 public:
  explicit StageReport(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}
  [[nodiscard]] std::vector<RankStage<B>>& of(int rank) {
    return ranks_[static_cast<std::size_t>(rank)];
  }
  /// Everything to the root.
  void bring(RankWorld& world) {
    ByteWriter w;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].empty() || world.is_root()) continue;
      w.put(r);
      w.put(ranks_[r].size());
      for (const RankStage<B>& stage : ranks_[r]) {
        put(w, stage.inputs);
        w.put(stage.result.has_value());
        if (stage.result) w.put_all(std::span<const std::byte>(eigen::pack(*stage.result)));
      }
    }
    for (const Bytes& bytes : world.bring(w.bytes))
      for (ByteReader in(bytes); !in.at_end();) {
        std::vector<RankStage<B>>& stages = ranks_.at(in.get<std::size_t>());
        stages.resize(in.get<std::size_t>());
        for (RankStage<B>& stage : stages) {
          stage.inputs = get_stage(in);
          if (in.get<bool>()) stage.result = eigen::unpack<RealOf<B>>(in.get_vector<std::byte>());
        }
      }
  }
  [[nodiscard]] std::vector<RunStage> finish(const RunStreams& streams) const {
    std::vector<RunStage> out;
    for (std::size_t stage = 0; stage < streams.outputs.size(); ++stage)
      out.push_back(finished(stage, streams.outputs));
    return out;
  }

 private:
  [[nodiscard]] static std::string name_of(std::size_t stage, std::size_t stages) {
    if (stage == 0) return "embedding";
    return stage + 1 == stages ? "norm and head" : "layer " + std::to_string(stage - 1);
  }
  [[nodiscard]] RunStage finished(std::size_t stage,
                                  const std::vector<RunStreams::Tensor>& outputs) const {
    const RunStreams::Tensor& wanted = outputs[stage];
    RunStage out;
    for (const auto& rank : ranks_) add_stage(out, rank.at(stage).inputs);
    out.name = name_of(stage, outputs.size());
    const auto& first = ranks_[0].at(stage).result;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const auto& result = ranks_[r].at(stage).result;
      if (!result) continue;
      compare_stage(out, {static_cast<int>(r), "output", {}, 0, 0}, *result, wanted);
      if (r == 0 || !first) continue;
      out.copies += wanted.value.size();
      for (Index i = 0; i < wanted.value.size(); ++i)
        if (std::memcmp(result->value.data() + i, first->value.data() + i,
                        sizeof(*first->value.data())) != 0)
          ++out.unequal;
    }
    return out;
  }
  static void put(ByteWriter& w, const RunStage& s) {
    for (const Index n : {s.compared, s.outside, s.unbounded, s.at.token, s.at.column}) w.put(n);
    w.put(s.at.rank);
    w.put(s.largest_ratio.has_value());
    w.put(s.largest_ratio.value_or(0));
    w.put(s.largest_difference);
    w.put_text(s.at.tensor);
  }
  [[nodiscard]] static RunStage get_stage(ByteReader& r) {
    RunStage s;
    for (Index* n : {&s.compared, &s.outside, &s.unbounded, &s.at.token, &s.at.column})
      *n = r.get<Index>();
    s.at.rank = r.get<int>();
    const bool has_ratio = r.get<bool>();
    const auto ratio = r.get<double>();
    if (has_ratio) s.largest_ratio = ratio;
    s.largest_difference = r.get<double>();
    s.at.tensor = r.get_text();
    return s;
  }

  std::vector<std::vector<RankStage<B>>> ranks_;  ///< [rank][stage]
};

}  // namespace tpsim::cli
