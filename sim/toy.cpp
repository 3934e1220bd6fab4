// SPDX-License-Identifier: MIT
// The teaching view: the matrices themselves, rank by rank.
#include <cstdio>

#include <fmt/format.h>

#include <tpsim/verify/faulty_comm.hpp>
#include <tpsim/verify/linear_subjects.hpp>
#include <tpsim/verify/run_ranks.hpp>

#include "sim/commands.hpp"

namespace tpsim::cli {
namespace {

std::string matrix_text(const eigen::Matrix<double>& m) {
  std::string out = "[";
  for (Index r = 0; r < m.rows(); ++r) {
    out += r == 0 ? "[" : ", [";
    for (Index c = 0; c < m.cols(); ++c)
      out += fmt::format("{}{:.6g}", c == 0 ? "" : ", ", m(r, c));
    out += "]";
  }
  return out + "]";
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

void print_toy(const LayerSpec& spec) {
  using Numeric = Subject::Numeric;
  const auto subject = make_subject(spec);
  const Shape shape(subject->tokens, subject->input_width);
  std::fputs(fmt::format("toy {} over {} ranks; the input is {} of ones\n", spec.layer, spec.tp,
                         shape.str())
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
  if (!runs.trace.empty()) {
    // The same run without its sums, to see what each rank brings to them.
    Variation apart;
    apart.between = [](Communicator& c) {
      return std::make_unique<detail::RepeatedAllReduce>(c, 0);
    };
    const LinearSubject<> partial(spec, apart);
    const auto parts = run_ranks<Numeric>(
        partial, partial.tensors, [](int rank) { return std::make_unique<Numeric>(rank); }, ones,
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
