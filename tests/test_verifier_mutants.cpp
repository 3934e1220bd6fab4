// SPDX-License-Identifier: MIT
// The verifier's own mutants: one rule of a reading is switched off, and a fault that was found is
// found no longer, or right code is complained of. Two more are beside what they weaken: the fold
// of two limbs (test_field_arithmetic), the bound without the collective (test_numeric_modes); and
// the static reading's are held to the transition table (test_transition_static).
#include <tests/support/verify_fixture.hpp>

#include <tpsim/comm/fixed_rank.hpp>
#include <tpsim/layout/memory_values.hpp>
#include <tpsim/verify/module.hpp>

namespace verifier_mutants_tests {
namespace {

using namespace tpsim;
using namespace tpsim::testing;

/// Does this reading pass, with this rule left out?
bool passes(const Subject& subject, Reading reading, Weakening weakening = Weakening::none) {
  VerifyOptions o;
  o.statics = reading == Reading::statics;
  o.exact = reading == Reading::exact;
  o.numeric = reading == Reading::numeric;
  o.weakening = weakening;
  const Report report = verify(subject, o);
  Index compared = 0;
  for (const CheckResult& c : report.checks) compared += c.compared;
  CHECK(compared > 0);
  return report.passed();
}

struct Sizes {
  Index heads = 0, head_dim = 0, hidden = 0;
};

/// Queries over the square root of head_dim, or of the number of local columns.
template <Backend B, bool wrong>
class ScaledQueries {
 public:
  using Tensor = typename B::Tensor;
  ScaledQueries(B& b, Communicator& tp, const Sizes& s)
      : b_(b),
        q_(b, tp, s.hidden, s.heads * s.head_dim),
        n_(wrong ? s.heads * s.head_dim / tp.size() : s.head_dim) {}
  Params<B> params() { return {{"q_proj.weight", &q_.weight}}; }
  void load(const std::string& /*name*/, const FullTensor& t) { q_.weight_loader(q_.weight, t); }
  Tensor forward(const Tensor& x) { return b_.divide_by_sqrt(q_.forward(x), n_); }
  static Tensor full(B& b, const Tensor& x, const FullParams<B>& t, const Sizes& s) {
    return b.divide_by_sqrt(full_linear(b, x, t, "q_proj."), s.head_dim);
  }

 private:
  B& b_;
  ColumnParallelLinear<B> q_;
  Index n_;
};
template <bool wrong>
struct ScaledQueriesModule {
  template <class B>
  using Rank = ScaledQueries<B, wrong>;
  static Plan plan(const Sizes& s) {
    return {.name = "scaled_queries",
            .axes = {{"H", s.hidden}, {"h", s.heads}, {"d", s.head_dim}},
            .tensors = {{"q_proj.weight", "h*d", "H", "column", "h even"}},
            .input = "H",
            .outputs = {{"h*d", "h even"}}};
  }
};

/// silu of a row-parallel product; wrong: the average of silu of tp times the partial products.
template <Backend B, bool wrong>
class ActivatedRow {
 public:
  using Tensor = typename B::Tensor;
  ActivatedRow(B& b, Communicator& tp, const Sizes& s)
      : b_(b), tp_(tp), row_(b, tp, s.hidden, s.hidden, RowOptions{.reduce_results = !wrong}) {}
  Params<B> params() { return {{"weight", &row_.weight}}; }
  void load(const std::string& /*name*/, const FullTensor& t) {
    row_.weight_loader(row_.weight, t);
  }
  Tensor forward(const Tensor& x) {
    if (!wrong) return b_.silu(row_.forward(x));
    const Tensor partial = b_.scale(row_.forward(x), Rational(tp_.size()));
    return b_.scale(all_reduce(b_, tp_, b_.silu(partial)), Rational(1, tp_.size()));
  }
  static Tensor full(B& b, const Tensor& x, const FullParams<B>& t) {
    return b.silu(full_linear(b, x, t, ""));
  }

 private:
  B& b_;
  Communicator& tp_;
  RowParallelLinear<B> row_;
};
template <bool wrong>
struct ActivatedRowModule {
  template <class B>
  using Rank = ActivatedRow<B, wrong>;
  static Plan plan(const Sizes& s) {
    return {.name = "activated_row",
            .axes = {{"H", s.hidden}, {"o", s.hidden}},
            .tensors = {{"weight", "o", "H", "row", "H even"}},
            .input = "H even",
            .outputs = {"o"}};
  }
};

/// The same layer at tp 1 in place of full(), for the exact reading.
class AgainstTpOne final : public Subject {
 public:
  AgainstTpOne(std::unique_ptr<Subject> subject, std::unique_ptr<Subject> one)
      : Subject(*subject), subject_(std::move(subject)), one_(std::move(one)) {}

  [[nodiscard]] std::unique_ptr<Communicator> between(Communicator& world) const override {
    return subject_->between(world);
  }

 protected:
  std::unique_ptr<ModuleOn<SymbolicBackend>> do_make(SymbolicBackend& b,
                                                     Communicator& c) const override {
    return subject_->make(b, c);
  }
  std::unique_ptr<ModuleOn<FieldBackend>> do_make(FieldBackend& b, Communicator& c) const override {
    return subject_->make(b, c);
  }
  std::unique_ptr<ModuleOn<Numeric>> do_make(Numeric& b, Communicator& c) const override {
    return subject_->make(b, c);
  }
  std::vector<SymbolicTensor> do_full(SymbolicBackend& b, const SymbolicTensor& x,
                                      const FullParams<SymbolicBackend>& t) const override {
    return subject_->full(b, x, t);
  }
  std::vector<FieldTensor> do_full(FieldBackend& b, const FieldTensor& x,
                                   const FullParams<FieldBackend>& /*t*/) const override {
    FixedRank alone(0, 1);
    const auto module = one_->make(b, alone);
    for (const DiskTensor& t : one_->tensors) module->load(t);
    return {module->forward(x)};
  }
  std::vector<Reference::Tensor> do_full(Reference& b, const Reference::Tensor& x,
                                         const FullParams<Reference>& t) const override {
    return subject_->full(b, x, t);
  }

 private:
  std::unique_ptr<Subject> subject_, one_;
};

}  // namespace

TEST_CASE("verifier mutant: an identity for silu lets exchanged gate and up pass") {
  const auto exchanged = make_faulty_subject(small("mlp", 4), "gate-up-exchanged");
  CHECK(!passes(*exchanged, Reading::exact));
  CHECK(passes(*exchanged, Reading::exact, Weakening::identity_oracle));
}

TEST_CASE("verifier mutant: an affine silu lets an average of activated partial products pass") {
  const Sizes s{2, 2, 12};
  const auto wrong = make_subject(ActivatedRowModule<true>{}, s, {.tp = 4, .tokens = 3});
  const auto right = make_subject(ActivatedRowModule<false>{}, s, {.tp = 4, .tokens = 3});
  CHECK(!passes(*wrong, Reading::exact));
  CHECK(passes(*wrong, Reading::exact, Weakening::affine_oracle));
  CHECK(!passes(*wrong, Reading::statics));
  CHECK(passes(*right, Reading::exact));
  CHECK(passes(*right, Reading::statics));
}

TEST_CASE("verifier mutant: an oracle keyed by rank complains of right code") {
  const auto right = make_subject(small("mlp", 4));
  CHECK(passes(*right, Reading::exact));
  CHECK(!passes(*right, Reading::exact, Weakening::rank_keyed_oracle));
}

TEST_CASE("verifier mutant: one fixed attention scale lets a scale of a local width pass") {
  const Sizes s{4, 6, 8};
  const auto wrong = make_subject(ScaledQueriesModule<true>{}, s, {.tp = 2, .tokens = 3});
  const auto right = make_subject(ScaledQueriesModule<false>{}, s, {.tp = 2, .tokens = 3});
  CHECK(!passes(*wrong, Reading::exact));
  CHECK(passes(*wrong, Reading::exact, Weakening::fixed_scale));
  for (const Reading reading : {Reading::statics, Reading::numeric}) {
    CHECK(!passes(*wrong, reading));
    CHECK(passes(*right, reading));
  }
  CHECK(passes(*right, Reading::exact));
}

TEST_CASE("verifier mutant: zeros for poison hide a bias that was never loaded") {
  LayerSpec s = small("column", 2);
  s.bias = true;
  // As in many real checkpoints.
  s.values["bias"] = std::make_shared<MemoryValues>(
      Shape(s.out), std::vector<float>(static_cast<std::size_t>(s.out), 0.F));
  const auto subject = make_faulty_subject(s, "bias-never-read");
  const auto rounding = [&](Weakening weakening) {
    return read_rounding(*subject, {.weakening = weakening}).front();
  };
  CHECK(rounding(Weakening::none).result == Outcome::fail);
  CHECK(rounding(Weakening::zeros_for_poison).result == Outcome::pass);
}

TEST_CASE("verifier mutant: a look at rank 0 alone misses what the other ranks lack") {
  const auto lacking = make_faulty_subject(small("row", 4), "bias-after-sum-once");
  CHECK(!passes(*lacking, Reading::exact));
  CHECK(passes(*lacking, Reading::exact, Weakening::compare_rank_zero_only));
}

TEST_CASE("verifier mutant: tp 1 for a reference shares every fault that is there at tp 1") {
  const auto against_one = [](const std::string& fault) {
    const auto at = [&](int tp) { return make_faulty_subject(small("mlp", tp), fault); };
    return AgainstTpOne(at(4), at(1));
  };
  for (const char* fault : {"gate-up-exchanged", "bias-on-no-rank"}) {
    INFO(fault);
    CHECK(!passes(*make_faulty_subject(small("mlp", 4), fault), Reading::exact));
    CHECK(passes(against_one(fault), Reading::exact));
  }
  CHECK(!passes(against_one("missing-all-reduce"), Reading::exact));  // not there at tp 1
}

TEST_CASE("verifier mutant: accepting partial + replicated in the whole static reading") {
  const auto biased = make_faulty_subject(small("row", 4), "bias-on-every-rank");
  CHECK(!passes(*biased, Reading::statics));
  CHECK(passes(*biased, Reading::statics, Weakening::accept_partial_plus_replicated));
}

}  // namespace verifier_mutants_tests
