// SPDX-License-Identifier: MIT
// The teaching view: the matrices themselves, rank by rank.
#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include <tpsim/verify/run_ranks.hpp>

#include "sim/commands.hpp"
#include "sim/subjects.hpp"

namespace tpsim::cli {
namespace {

// The name and shape of a matrix take 39 columns; its rows go on below where they do not fit.
constexpr std::size_t before = 39;

std::string matrix_text(const eigen::Matrix<double>& m) {
  std::vector<std::string> rows;
  for (Index r = 0; r < m.rows(); ++r) {
    std::string row = r == 0 ? "[[" : "[";
    for (Index c = 0; c < m.cols(); ++c)
      row += fmt::format("{}{:.6g}", c == 0 ? "" : ", ", m(r, c));
    rows.push_back(row + (r + 1 < m.rows() ? "]," : "]]"));
  }
  std::string out, line;
  for (const std::string& row : rows) {
    if (!line.empty() && before + line.size() + 1 + row.size() > 80) {
      out += line + "\n" + std::string(before, ' ');
      line.clear();
    }
    line += (line.empty() ? (out.empty() ? "" : " ") : " ") + row;
  }
  return out + line;
}

eigen::Matrix<double> numbers_of(const eigen::Param& p) {
  eigen::Matrix<double> m(p.shape.rows(), p.shape.cols());
  for (Index r = 0; r < m.rows(); ++r)
    for (Index c = 0; c < m.cols(); ++c) m(r, c) = p.at(r, c);
  return p.shape.rank() == 1 ? eigen::Matrix<double>(m.transpose()) : m;
}

Shape shape_of(const eigen::Tensor<float>& t) { return {t.value.rows(), t.value.cols()}; }

void print(const std::string& who, Shape shape, const eigen::Matrix<double>& m) {
  std::fputs(fmt::format("  {:<28}{:<9}{}\n", who, shape.str(), matrix_text(m)).c_str(), stdout);
}

}  // namespace

void print_toy(const LayerSpec& spec, const std::string& fault) {
  using Numeric = Subject::Numeric;
  const auto subject = subject_of(spec, fault);
  const Shape shape(subject->tokens, subject->input_width);
  std::fputs(fmt::format("toy {} over {} rank{}; the input is {} of ones\n", spec.layer, spec.tp,
                         spec.tp == 1 ? "" : "s", shape.str())
                 .c_str(),
             stdout);
  for (const DiskTensor& t : subject->tensors) {
    eigen::Matrix<double> m(t.stored->shape.rows(), t.stored->shape.cols());
    for (Index r = 0; r < m.rows(); ++r)
      t.stored->values->read(
          r, 0, std::span(m.data() + r * m.cols(), static_cast<std::size_t>(m.cols())));
    print("full " + t.stored->name, t.stored->shape,
          t.stored->shape.rank() == 1 ? eigen::Matrix<double>(m.transpose()) : m);
  }
  const auto ones = [&](Numeric& b) {
    return b.input(eigen::Matrix<float>(eigen::Matrix<float>::Ones(shape.rows(), shape.cols())));
  };
  const auto runs = run_ranks<Numeric>(
      *subject, subject->tensors, [](int rank) { return std::make_unique<Numeric>(rank); }, ones,
      [&](std::size_t r, Numeric&, ModuleOn<Numeric>& module) {
        for (const auto& [name, param] : module.params())
          print(fmt::format("rank {} {}", r, name), param->shape, numbers_of(*param));
      });
  // The same run without its sums, to see what each rank brings to them.
  const bool sums = std::any_of(runs.trace.begin(), runs.trace.end(),
                                [](const auto& c) { return c.op == CollectiveOp::all_reduce; });
  if (sums && fault.empty()) {
    const auto apart = subject_of(spec, "missing-all-reduce");
    const auto parts = run_ranks<Numeric>(
        *apart, apart->tensors, [](int rank) { return std::make_unique<Numeric>(rank); }, ones,
        [](std::size_t, Numeric&, ModuleOn<Numeric>&) {});
    for (std::size_t r = 0; r < parts.outputs.size(); ++r)
      if (parts.outputs[r])
        print(fmt::format("rank {} before the sum", r), shape_of(*parts.outputs[r]),
              parts.outputs[r]->value.cast<double>());
  }
  for (std::size_t r = 0; r < runs.outputs.size(); ++r)
    if (runs.outputs[r])
      print(fmt::format("rank {} returns", r), shape_of(*runs.outputs[r]),
            runs.outputs[r]->value.cast<double>());
  for (const CollectiveRecord& c : runs.trace)
    std::fputs(
        fmt::format("  {} {} among {} ranks\n", name(c.op), c.shape.str(), c.group_size).c_str(),
        stdout);
  std::fputs("\n", stdout);
}

}  // namespace tpsim::cli
