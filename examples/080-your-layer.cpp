// SPDX-License-Identifier: MIT
// Your own layer. tpsim needs one rank's code over a Backend, its meaning (full), and a plan of its
// tensors; then it is verified as the library's own layers are.
#include <tpsim/verify/module.hpp>
#include <tpsim/verify/report_text.hpp>

#include <fmt/format.h>

using namespace tpsim;

struct Sizes {
  Index hidden, inner;
};

// One rank's code, as an engine has it: down((up x)^2).
template <Backend B>
struct SquareMlp {
  using Tensor = typename B::Tensor;
  B& b;
  Communicator& tp;
  Index mine;  // inner columns of this rank
  typename B::Param up, down;

  SquareMlp(B& backend, Communicator& comm, const Sizes& s)
      : b(backend),
        tp(comm),
        mine(divide(s.inner, tp.size())),
        up(b.empty("up", {mine, s.hidden})),
        down(b.empty("down", {s.hidden, mine})) {}

  Params<B> params() { return {{"up_proj.weight", &up}, {"down_proj.weight", &down}}; }

  void load(const std::string& name, const FullTensor& t) {
    if (name == "up_proj.weight") b.copy(up, 0, 0, t, tp.rank() * mine, mine);
    if (name == "down_proj.weight") b.copy(down, 1, 0, t, tp.rank() * mine, mine);
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = b.linear(x, up);
    return all_reduce(b, tp, b.linear(b.mul(y, y), down));
  }
  // What the layer means when nothing is cut.
  static Tensor full(B& backend, const Tensor& x, const FullParams<B>& t) {
    const Tensor y = full_linear(backend, x, t, "up_proj.");
    return full_linear(backend, backend.mul(y, y), t, "down_proj.");
  }
};

// What tpsim has to know about it: tensors with rows, columns, style and cut.
struct MySquareMlp {
  template <class B>
  using Rank = SquareMlp<B>;
  static Plan plan(const Sizes& s) {
    return {.name = "square_mlp",
            .axes = {{"H", s.hidden}, {"i", s.inner}},
            .tensors = {{"up_proj.weight", "i", "H", "column", "i even"},
                        {"down_proj.weight", "H", "i", "row", "i even"}},
            .input = "H",
            .outputs = {"H"}};
  }
};

// The same with a loader that is wrong: every rank takes down's columns one further on.
template <Backend B>
struct ShiftedMlp : SquareMlp<B> {
  using SquareMlp<B>::SquareMlp;
  void load(const std::string& name, const FullTensor& t) {
    if (name != "down_proj.weight") return SquareMlp<B>::load(name, t);
    const Index last = t.shape().cols() - this->mine;
    this->b.copy(this->down, 1, 0, t, std::min(this->tp.rank() * this->mine + 1, last), this->mine);
  }
};
struct MyShiftedMlp : MySquareMlp {
  template <class B>
  using Rank = ShiftedMlp<B>;
};

int main() {
  // Numeric figures differ from machine to machine; the other two readings do not.
  const ModuleOptions options{.tp = 4, .tokens = 2, .readings = {.numeric = false}};
  fmt::print("{}\n", text(verify(MySquareMlp{}, Sizes{8, 12}, options)));

  const Report wrong = verify(MyShiftedMlp{}, Sizes{8, 12}, options);
  for (const CheckResult& check : wrong.checks)
    if (!check.findings.empty()) fmt::print("{:<9} {}\n", check.id, check.message);
  const Finding& first = wrong.find("order")->findings.front();
  fmt::print("cause: {}\nrepair: {}\n\n", first.cause, first.repair);

  try {
    (void)verify(MySquareMlp{}, Sizes{8, 12}, {.tp = 5});
  } catch (const LayoutError& error) {
    fmt::print("{}\n", error.what());
  }
}
