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

// The shape of a matrix takes 9 columns, its name as many as the longest one.
constexpr std::size_t shape_width = 9, least_name_width = 28;

// After `before` columns; rows go on below where they do not fit.
std::string matrix_text(const eigen::Matrix<double>& m, std::size_t before) {
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

// One line for each matrix.
class Lines {
 public:
  explicit Lines(const Subject& subject) {
    for (const DiskTensor& t : subject.tensors) fit("full " + t.stored->name);
    for (const DeclaredParam& p : subject.params)
      fit(fmt::format("rank {} {}", subject.tp - 1, p.name));
  }
  void print(const std::string& who, Shape shape, const eigen::Matrix<double>& m) const {
    std::fputs(fmt::format("  {:<{}}{:<{}}{}\n", who, name_width_, shape.str(), shape_width,
                           matrix_text(m, 2 + name_width_ + shape_width))
                   .c_str(),
               stdout);
  }

 private:
  void fit(const std::string& name) { name_width_ = std::max(name_width_, name.size() + 1); }
  std::size_t name_width_ = least_name_width;
};

}  // namespace

void print_toy(const LayerSpec& spec, const std::string& fault) {
  using Numeric = Subject::Numeric;
  const auto subject = subject_of(spec, fault);
  const Lines lines(*subject);
  const Shape shape(subject->tokens, subject->input_width);
  const std::string input = subject->token_ids.empty()
                                ? fmt::format("input is {} of ones", shape.str())
                                : fmt::format("tokens are {}", fmt::join(subject->token_ids, ", "));
  std::fputs(fmt::format("toy {} over {} rank{}; the {}\n", spec.layer, spec.tp,
                         spec.tp == 1 ? "" : "s", input)
                 .c_str(),
             stdout);
  for (const DiskTensor& t : subject->tensors) {
    eigen::Matrix<double> m(t.stored->shape.rows(), t.stored->shape.cols());
    for (Index r = 0; r < m.rows(); ++r)
      t.stored->values->read(
          r, 0, std::span(m.data() + r * m.cols(), static_cast<std::size_t>(m.cols())));
    lines.print("full " + t.stored->name, t.stored->shape,
                t.stored->shape.rank() == 1 ? eigen::Matrix<double>(m.transpose()) : m);
  }
  const auto ones = [&](Numeric& b) {
    return b.input(eigen::Matrix<float>(eigen::Matrix<float>::Ones(shape.rows(), shape.cols())));
  };
  const auto runs = run_ranks<Numeric>(
      *subject, subject->tensors, [](int rank) { return std::make_unique<Numeric>(rank); }, ones,
      [&](std::size_t r, Numeric&, ModuleOn<Numeric>& module) {
        for (const auto& [name, param] : module.params())
          lines.print(fmt::format("rank {} {}", r, name), param->shape, numbers_of(*param));
      });
  // The same run without its one sum, to see what each rank brings to it.
  const auto sums = std::count_if(runs.trace.begin(), runs.trace.end(),
                                  [](const auto& c) { return c.op == CollectiveOp::all_reduce; });
  const Fault* unsummed = find_fault("missing-all-reduce");
  if (sums == 1 && fault.empty() && unsummed->applies_to(spec.layer)) {
    const auto apart = subject_of(spec, "missing-all-reduce");
    const auto parts = run_ranks<Numeric>(
        *apart, apart->tensors, [](int rank) { return std::make_unique<Numeric>(rank); }, ones,
        [](std::size_t, Numeric&, ModuleOn<Numeric>&) {});
    for (std::size_t r = 0; r < parts.outputs.size(); ++r)
      if (parts.outputs[r])
        lines.print(fmt::format("rank {} before the sum", r), shape_of(*parts.outputs[r]),
                    parts.outputs[r]->value.cast<double>());
  }
  for (std::size_t r = 0; r < runs.outputs.size(); ++r)
    if (runs.outputs[r])
      lines.print(fmt::format("rank {} returns", r), shape_of(*runs.outputs[r]),
                  runs.outputs[r]->value.cast<double>());
  for (const CollectiveRecord& c : runs.trace)
    std::fputs(
        fmt::format("  {} {} among {} ranks\n", name(c.op), c.shape.str(), c.group_size).c_str(),
        stdout);
  std::fputs("\n", stdout);
}

}  // namespace tpsim::cli
