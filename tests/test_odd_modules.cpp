// SPDX-License-Identifier: MIT
// What looks odd and is right passes every reading; what is wrong fails, with its own cause.
#include <tests/support/verify_fixture.hpp>

#include <tests/support/odd_modules.hpp>
#include <tests/support/symbolic_fixture.hpp>
#include <tpsim/verify/report_text.hpp>

namespace odd_modules_tests {
namespace {

using namespace tpsim;
using namespace tpsim::testing;
using namespace stranger;

template <class Module>
Report report_of(int tp, Index tokens = 16, OddShape shape = {8, 24}) {
  return verify(Module{}, shape, {.tp = tp, .tokens = tokens});
}
template <class Module>
void require_quiet(int tp, Index tokens = 16, OddShape shape = {8, 24}) {
  const Report report = report_of<Module>(tp, tokens, shape);
  INFO("tp " << tp << "\n" << text(report));
  CHECK(failed(report).empty());
  for (const char* id : {"order", "state", "exact"}) CHECK(check(report, id).compared > 0);
}

}  // namespace

TEST_CASE("odd modules: other ways to sum pass every reading") {
  for (const int tp : {1, 2, 4}) {
    require_quiet<OddMlpModule<Odd::columns_scattered>>(tp);
    require_quiet<OddMlpModule<Odd::gathered_then_sum>>(tp);
    require_quiet<OddMlpModule<Odd::residual_on_rank0>>(tp);
    require_quiet<OddMlpModule<Odd::shared_down>>(tp);
    require_quiet<OddMlpModule<Odd::twice>>(tp);
  }
  require_quiet<OddMlpModule<Odd::two_steps>>(4);
}

TEST_CASE("odd modules: tokens shared out over more ranks than the exact reading has tokens") {
  require_quiet<OddMlpModule<Odd::tokens_scattered>>(3, 6);
  require_quiet<OddMlpModule<Odd::tokens_scattered>>(8);
  // By itself too, as the laws use it.
  const auto subject =
      make_subject(OddMlpModule<Odd::tokens_scattered>{}, OddShape{8, 24}, {.tp = 8, .tokens = 16});
  for (const CheckResult& c : read_exactly(*subject, read_statically(*subject)))
    CHECK(c.result == Outcome::pass);
}

namespace {

/// A weight that forward never reads, which each rank may load from another rank's place.
template <Backend B, bool elsewhere>
class WithSpare {
 public:
  using Tensor = typename B::Tensor;
  WithSpare(B& b, Communicator& tp, const OddShape& s)
      : b_(b),
        rank_(elsewhere ? tp.size() - 1 - tp.rank() : tp.rank()),
        rows_(divide(s.inner, tp.size(), "spare rows")),
        used_(b.empty("used", {s.hidden, s.hidden})),
        spare_(b.empty("spare", {rows_, s.hidden})) {}
  Params<B> params() { return {{"used.weight", &used_}, {"spare.weight", &spare_}}; }
  void load(const std::string& name, const FullTensor& t) {
    if (name == "used.weight") return b_.copy(used_, 0, 0, t, 0, t.shape().rows());
    b_.copy(spare_, 0, 0, t, rank_ * rows_, rows_);
  }
  Tensor forward(const Tensor& x) { return b_.linear(x, used_); }
  static Tensor full(B& b, const Tensor& x, const FullParams<B>& t) {
    return full_linear(b, x, t, "used.");
  }

 private:
  B& b_;
  Index rank_, rows_;
  typename B::Param used_, spare_;
};
template <bool elsewhere>
struct WithSpareModule {
  template <class B>
  using Rank = WithSpare<B, elsewhere>;
  static Plan plan(const OddShape& s) {
    return {.name = "with_spare",
            .axes = {{"H", s.hidden}, {"o", s.hidden}, {"i", s.inner}},
            .tensors = {{"used.weight", "o", "H", "replicated"},
                        {"spare.weight", "i", "H", "column", "i even"}},
            .input = "H",
            .outputs = {"o"}};
  }
};

}  // namespace

TEST_CASE("odd modules: a weight that no result depends on still has to be where it is declared") {
  require_quiet<WithSpareModule<false>>(4);
  CHECK(failed(report_of<WithSpareModule<true>>(4)) == std::set<std::string>{"order"});
}

TEST_CASE("odd modules: what full() lets meet, the ranks may let meet, and nothing else") {
  for (const int tp : {1, 2, 4}) require_quiet<SideBySideModule<false>>(tp);
  const Report swapped = report_of<SideBySideModule<true>>(2);
  CHECK(failed(swapped).count("partners") == 1);
  CHECK(failed(swapped).count("exact") == 1);
}

TEST_CASE("odd modules: faulty twins fail both readings with their own cause") {
  const Report small = report_of<OddMlpModule<Odd::group_too_small>>(4);
  CHECK(check(small, "state").findings.at(0).cause ==
        "the sum runs over too small a group: 2 of 4 ranks");
  CHECK(failed(small).count("exact") == 1);
  const Report tokens = report_of<OddMlpModule<Odd::tokens_exchanged>>(2);
  CHECK(check(tokens, "state").findings.at(0).cause ==
        "the tokens are others, or in another order");
  CHECK(failed(tokens).count("exact") == 1);
}

TEST_CASE("odd modules: parts of different sums are not one sum") {
  SymbolicContext context;
  const FullTensor first = test::full_tensor("first", Shape(8, 8)),
                   second = test::full_tensor("second", Shape(8, 8));
  SymbolicBackend reference(context, -1);
  const SymbolicTensor wanted =
      reference.linear(reference.linear(reference.input("x", 2, 8), test::whole(reference, first)),
                       test::whole(reference, second));
  const auto ranks = test::run(context, 2, [&](SymbolicBackend& b, Communicator& comm) {
    const SymbolicTensor x = b.input("x", 2, 8);
    // Both are right by themselves: rank 0 sums over columns of `first`, rank 1 over `second`'s.
    SymbolicTensor part =
        comm.rank() == 0 ? b.linear(b.linear(b.slice(x, 1, 0, 4), test::held(b, first, 0, 8, 0, 4)),
                                    test::whole(b, second))
                         : b.linear(b.linear(x, test::held(b, first, 4, 4, 0, 8)),
                                    test::held(b, second, 0, 8, 4, 4));
    return all_reduce(b, comm, std::move(part));
  });
  CHECK(context.findings().size() == 1);
  for (const SymbolicTensor& t : ranks) CHECK(compare(context, t, wanted));
}

}  // namespace odd_modules_tests
