// SPDX-License-Identifier: MIT
// Where a stage first differs from what it means.
#include <algorithm>
#include <memory>
#include <utility>

#include <tpsim/verify/compare_outputs.hpp>

#include "sim/check_run.hpp"
#include "sim/subjects.hpp"

namespace tpsim::cli {
namespace {

constexpr Index located_tokens = 8;

/// The first element that differs on a rank; nothing where it differs in none.
struct RankPlace {
  int rank = 0;
  Index column = 0;
};

/// One for each rank that differs; a rank that returns nothing, or another shape, has column -1.
std::vector<RankPlace> differences(const Subject& subject, std::uint64_t seed) {
  const auto context = std::make_shared<FieldContext>(FieldContext{mix(seed), Weakening::none});
  const auto input = [&](FieldBackend& b) {
    return b.input("x", subject.tokens, subject.input_width);
  };
  const auto runs = run_ranks<FieldBackend>(
      subject, subject.tensors,
      [&](int rank) { return std::make_unique<FieldBackend>(context, rank); }, input,
      [](std::size_t, FieldBackend&, ModuleOn<FieldBackend>&) {});
  FieldBackend reference(context, subject.tp);
  const std::vector<FieldTensor> full =
      subject.full(reference, input(reference), full_params(reference, subject.tensors));
  std::vector<RankPlace> out;
  for (std::size_t r = 0; r < runs.outputs.size(); ++r) {
    const FieldTensor wanted = expected_output(reference, subject, full, r);
    const Shape shape = reference.shape(wanted);
    const int rank = static_cast<int>(r);
    if (!runs.outputs[r] || reference.shape(*runs.outputs[r]) != shape) {
      out.push_back({rank, -1});
      continue;
    }
    for (Index c = 0; c < shape.cols(); ++c) {
      bool same = true;
      for (Index t = 0; t < shape.rows(); ++t)
        same = same && runs.outputs[r]->at(t, c) == wanted.at(t, c);
      if (same) continue;
      out.push_back({rank, c});
      break;
    }
  }
  return out;
}

/// The finding that tells most: of the first failed check, one that names a rank.
const Finding* telling(const std::vector<CheckResult>& checks) {
  const Finding* any = nullptr;
  for (const CheckResult& c : checks)
    for (const Finding& f : c.findings) {
      if (f.rank >= 0) return &f;
      if (any == nullptr) any = &f;
    }
  return any;
}

/// Row and head of the weight whose products are the columns of a part.
void name_row(Divergence& d, const Subject& part, const RankPlace& at) {
  if (at.column < 0) return;
  Index column = at.column;
  for (const DeclaredOutput& output : part.outputs) {
    const Runs& columns = output.columns[static_cast<std::size_t>(at.rank)];
    if (column >= columns.size()) {
      column -= columns.size();
      continue;
    }
    d.row = columns[column];
    for (const DeclaredParam& p : part.params) {
      if (p.full_shape.rank() != 2 || output.result >= p.parts.size()) continue;
      const DeclaredPart& rows = p.parts[output.result];
      d.tensor = rows.tensor->name;
      if (rows.granule_name == "heads" || rows.granule_name == "kv") d.head = *d.row / rows.granule;
    }
    return;
  }
}

class Search {
 public:
  Search(Divergence& out, int wanted_rank, std::uint64_t seed)
      : out_(out), wanted_rank_(wanted_rank), seed_(seed) {}

  bool differs(const Subject& subject, const std::string& part, bool linear) {
    const std::vector<RankPlace> places = differences(subject, seed_);
    if (places.empty()) return false;
    const auto same_rank = std::find_if(places.begin(), places.end(),
                                        [&](const RankPlace& p) { return p.rank == wanted_rank_; });
    const RankPlace& at = same_rank == places.end() ? places.front() : *same_rank;
    out_.part = part;
    out_.rank = at.rank;
    out_.reduced = true;
    if (linear) name_row(out_, subject, at);
    return true;
  }

 private:
  Divergence& out_;
  int wanted_rank_;
  std::uint64_t seed_;
};

}  // namespace

Divergence locate(const StageMaker& stages, const Stage& stage,
                  const std::vector<CheckResult>& failed, std::uint64_t seed) {
  Divergence out;
  out.stage = stage.name();
  for (const CheckResult& c : failed)
    if (c.result == Outcome::fail) {
      out.check = c;
      break;
    }
  if (const Finding* f = telling(failed)) out.rank = f->rank, out.tensor = f->tensor;
  Search search(out, out.rank, seed);
  const std::unique_ptr<Subject> whole = stages.reduced(stage, located_tokens);
  if (stage.what != Stage::What::layer) {
    (void)search.differs(*whole, "", stage.what == Stage::What::head);
    return out;
  }
  Stage prefill = stage;
  prefill.decode = false;  // parts are those of a prefill
  const std::unique_ptr<Subject> layer = stages.reduced(prefill, located_tokens);
  const auto parts = layer->linear_parts();
  for (std::size_t k = 0; k < parts.size(); ++k) {
    if (search.differs(*parts[k], parts[k]->layer, true)) return out;
    // Behind qkv and o_proj, between which it lies.
    if (k == 1 &&
        search.differs(*stages.reduced_attention(stage, located_tokens), "self_attn", false))
      return out;
  }
  (void)search.differs(*whole, "", false);
  return out;
}

}  // namespace tpsim::cli
