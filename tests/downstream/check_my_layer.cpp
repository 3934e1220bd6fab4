// SPDX-License-Identifier: MIT
// A stranger's row-parallel layer with a gate: y = W (g . x), x and g cut by column.
// check_my_layer           verifies it: exit status 0
// check_my_layer --wrong   the loader cuts g as if every rank were the first: exit status 1
#include <iostream>
#include <string>

#include <tpsim/verify/module.hpp>
#include <tpsim/verify/report_text.hpp>

namespace acme {

struct Sizes {
  tpsim::Index width, out;
};

template <tpsim::Backend B, bool wrong>
class GatedRow {
 public:
  using Tensor = typename B::Tensor;
  GatedRow(B& b, tpsim::Communicator& tp, const Sizes& s)
      : b_(b),
        tp_(tp),
        mine_(tpsim::divide(s.width, tp.size(), "columns")),
        gate_(b.empty("gate", {mine_, mine_ * tp.size()})),
        weight_(b.empty("weight", {s.out, mine_})) {}

  tpsim::Params<B> params() { return {{"gate.weight", &gate_}, {"proj.weight", &weight_}}; }
  bool load(const std::string& name, const tpsim::FullTensor& t) {
    const tpsim::Index first = tp_.rank() * mine_;
    if (name == "gate.weight") return b_.copy(gate_, 0, 0, t, wrong ? 0 : first, mine_), true;
    if (name == "proj.weight") return b_.copy(weight_, 1, 0, t, first, mine_), true;
    return false;
  }
  // x: [tokens, width], whole; the gate is made of all of it
  Tensor forward(const Tensor& x) {
    const Tensor mine = b_.slice(x, 1, tp_.rank() * mine_, mine_);
    const Tensor gate = b_.silu(b_.linear(x, gate_));
    return all_reduce(b_, tp_, b_.linear(b_.mul(gate, mine), weight_));
  }
  static Tensor full(B& b, const Tensor& x, const tpsim::FullParams<B>& t) {
    return full_linear(b, b.mul(b.silu(full_linear(b, x, t, "gate.")), x), t, "proj.");
  }

 private:
  B& b_;
  tpsim::Communicator& tp_;
  tpsim::Index mine_;
  typename B::Param gate_, weight_;
};

template <bool wrong>
struct GatedRowModule {
  template <class B>
  using Rank = GatedRow<B, wrong>;
  static tpsim::Plan plan(const Sizes& s) {
    return {.name = "gated_row",
            .axes = {{"w", s.width}, {"o", s.out}},
            .tensors = {{"gate.weight", "w", "w", "column", "w even"},
                        {"proj.weight", "o", "w", "row", "w even"}},
            .input = "w",
            .outputs = {"o"}};
  }
};

template <bool wrong>
int check() {
  bool passed = true;
  for (const int tp : {1, 2, 4}) {
    const tpsim::Report report =
        tpsim::verify(GatedRowModule<wrong>{}, Sizes{8, 5}, {.tp = tp, .tokens = 3});
    std::cout << tpsim::text(report);
    passed = passed && report.passed();
  }
  return passed ? 0 : 1;
}

}  // namespace acme

int main(int argc, char** argv) {
  const bool wrong = argc > 1 && std::string(argv[1]) == "--wrong";
  return wrong ? acme::check<true>() : acme::check<false>();
}
