// SPDX-License-Identifier: MIT
// Full tensors without numbers, the reference, and worlds of symbolic ranks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tpsim/backend/symbolic/symbolic_backend.hpp>
#include <tpsim/comm/virtual_ranks.hpp>
#include <tpsim/layers/linear_options.hpp>

#include <tests/support/catch.hpp>

namespace tpsim::test {

/// A stored tensor in canonical order; a shape of one dimension makes a bias.
[[nodiscard]] inline FullTensor full_tensor(const std::string& name, Shape shape) {
  auto stored = std::make_shared<StoredTensor>();
  stored->name = name;
  stored->shape = shape;
  stored->identity = {{0, shape.rows(), std::make_shared<LogicalTensor>(name, shape), 0, 1}};
  return FullTensor(std::move(stored));
}

/// A parameter that holds rows [row, row + rows) x columns [col, col + cols) of `full`.
[[nodiscard]] inline SymbolicParam held(SymbolicBackend& b, const FullTensor& full, Index row,
                                        Index rows, Index col, Index cols) {
  const Shape shape = full.shape().rank() == 1 ? Shape(rows) : Shape(rows, cols);
  SymbolicParam param = b.empty(full.name(), shape);
  for (Piece p : full.pieces(row, rows, col, cols)) param.record(p);
  return param;
}
[[nodiscard]] inline SymbolicParam whole(SymbolicBackend& b, const FullTensor& full) {
  return held(b, full, 0, full.shape().rows(), 0, full.shape().cols());
}
[[nodiscard]] inline FullParams<SymbolicBackend> reference(SymbolicBackend& b,
                                                           const std::vector<FullTensor>& tensors) {
  FullParams<SymbolicBackend> params;
  for (const FullTensor& t : tensors) params.emplace(t.name(), whole(b, t));
  return params;
}

/// One result a rank.
using RankProgram = std::function<SymbolicTensor(SymbolicBackend&, Communicator&)>;
[[nodiscard]] inline std::vector<SymbolicTensor> run(SymbolicContext& context, int tp,
                                                     const RankProgram& program) {
  std::vector<SymbolicTensor> out(static_cast<std::size_t>(tp));
  VirtualRanks world{tp};
  world.run([&](Communicator& comm) {
    SymbolicBackend b(context, comm.rank());
    out[static_cast<std::size_t>(comm.rank())] = program(b, comm);
  });
  return out;
}

[[nodiscard]] inline std::vector<const SymbolicTensor*> pointers(
    const std::vector<SymbolicTensor>& tensors) {
  std::vector<const SymbolicTensor*> out;
  for (const SymbolicTensor& t : tensors) out.push_back(&t);
  return out;
}
/// "check: message" of every finding, one a line.
[[nodiscard]] inline std::string messages(const SymbolicContext& context) {
  std::string out;
  for (const Finding& f : context.findings()) out += f.check + ": " + f.message + "\n";
  return out;
}
[[nodiscard]] inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// No finding, and every rank holds `expected`.
inline void require_equal(SymbolicContext& context, const std::vector<SymbolicTensor>& ranks,
                          const SymbolicTensor& expected) {
  INFO(messages(context));
  CHECK(context.findings().empty());
  for (const SymbolicTensor& t : ranks) {
    const auto difference = compare(context, t, expected);
    INFO((difference ? difference->text : "equal"));
    CHECK_FALSE(difference);
  }
}

}  // namespace tpsim::test
