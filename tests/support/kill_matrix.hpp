// SPDX-License-Identifier: MIT
// Fault x layer x shape x tp: what each reading says of each cell, and whether the cell differs
// from the right program at all. Nothing here is decided by hand.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <sim/subjects.hpp>
#include <tpsim/verify/faults.hpp>
#include <tpsim/verify/replay.hpp>

namespace tpsim::testing {

/// All that a program does, at one seed: what the ranks hold and return, and what they call.
struct Behaviour {
  std::vector<std::vector<FieldTensor>> params;            ///< [rank][param]
  std::vector<std::vector<FieldTensor>> arrived_reversed;  ///< the same, loaded last tensor first
  std::vector<std::optional<FieldTensor>> outputs;
  std::vector<std::vector<std::uint32_t>> bits;  ///< [rank]: outputs in f32, then in bf16
  std::vector<std::string> calls;
  bool finished = true;  ///< nothing was refused and no rank waited in vain
};

[[nodiscard]] inline Behaviour behaviour(const Subject& subject, std::uint64_t seed) {
  Behaviour out;
  out.params.resize(static_cast<std::size_t>(subject.tp));
  const auto context = std::make_shared<FieldContext>(FieldContext{mix(seed)});
  const auto field = run_ranks<FieldBackend>(
      subject, subject.tensors,
      [&](int rank) { return std::make_unique<FieldBackend>(context, rank); },
      [&](FieldBackend& b) { return b.input("x", subject.tokens, subject.input_width); },
      [&](std::size_t r, FieldBackend& b, ModuleOn<FieldBackend>& module) {
        for (const auto& [name, param] : module.params()) out.params[r].push_back(b.read(*param));
      });
  std::vector<DiskTensor> reversed(subject.tensors.rbegin(), subject.tensors.rend());
  out.arrived_reversed.resize(static_cast<std::size_t>(subject.tp));
  (void)run_ranks<FieldBackend>(
      subject, reversed, [&](int rank) { return std::make_unique<FieldBackend>(context, rank); },
      [&](FieldBackend& b) { return b.input("x", 1, subject.input_width); },
      [&](std::size_t r, FieldBackend& b, ModuleOn<FieldBackend>& module) {
        for (const auto& [name, param] : module.params())
          out.arrived_reversed[r].push_back(b.read(*param));
      });
  out.outputs = field.outputs;
  out.finished = field.findings.empty();
  for (const CollectiveRecord& c : field.trace)
    if (c.op != CollectiveOp::split)  // a group is nothing before it is used
      out.calls.push_back(fmt::format("{} {} {} of {} #{} {}", name(c.op), name(c.reduction),
                                      c.group, c.group_size, c.sequence, c.shape.str()));
  using Numeric = Subject::Numeric;
  EigenOptions options;
  options.values = {eigen::ValueKind::normalish, seed, {}};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto numeric = run_ranks<Numeric>(
        subject, subject.tensors,
        [&](int rank) { return std::make_unique<Numeric>(rank, dtype, options); },
        [&](Numeric& b) { return b.activation("x", Shape(subject.tokens, subject.input_width)); },
        [](std::size_t, Numeric&, ModuleOn<Numeric>&) {});
    for (const auto& y : numeric.outputs) {
      out.bits.emplace_back();
      if (!y) continue;
      for (Index t = 0; t < y->value.rows(); ++t)
        for (Index c = 0; c < y->value.cols(); ++c)
          out.bits.back().push_back(std::bit_cast<std::uint32_t>(y->value(t, c)));
    }
  }
  return out;
}

/// How a cell's program differs from the right one, at three seeds.
enum class Difference { none, values, precision, calls_or_shards };

[[nodiscard]] inline Difference difference(const Subject& wrong, const Subject& right) {
  Difference found = Difference::none;
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    const Behaviour a = behaviour(wrong, seed), b = behaviour(right, seed);
    if (!a.finished || a.outputs != b.outputs) return Difference::values;
    if (a.params != b.params || a.arrived_reversed != b.arrived_reversed || a.calls != b.calls)
      found = Difference::calls_or_shards;
    if (found == Difference::none && a.bits != b.bits) found = Difference::precision;
  }
  return found;
}

constexpr std::array<Reading, 3> all_readings{Reading::statics, Reading::exact, Reading::numeric};

struct Cell {
  LayerSpec spec;
  Difference difference = Difference::none;
  std::array<bool, 3> found{};     ///< by reading
  std::array<std::string, 3> why;  ///< why a reading missed it; "" where it did not
};

[[nodiscard]] inline std::string why_missed(Reading reading, const Cell& cell,
                                            const Report& report) {
  if (cell.difference == Difference::precision)
    return reading == Reading::exact     ? "exact arithmetic does not round"
           : reading == Reading::statics ? "no number is looked at"
                                         : "the difference is within the rounding bound";
  if (cell.difference == Difference::calls_or_shards && reading != Reading::statics)
    return "no value changes";
  if (reading != Reading::numeric) return "";
  const CheckResult* rounding = report.find("rounding");
  return rounding == nullptr || !rounding->largest_ratio
             ? "not looked at"
             : fmt::format("the difference is {:.2g} of the rounding bound",
                           *rounding->largest_ratio);
}

[[nodiscard]] inline Cell judge_cell(const LayerSpec& spec, const std::string& fault) {
  Cell cell;
  cell.spec = spec;
  const auto wrong = cli::subject_of(spec, fault);
  const auto right = cli::subject_of(with_parts_of_fault(spec, fault), "");
  cell.difference = difference(*wrong, *right);
  for (std::size_t i = 0; i < all_readings.size(); ++i) {
    VerifyOptions one;
    one.statics = all_readings[i] == Reading::statics;
    one.exact = all_readings[i] == Reading::exact;
    one.numeric = all_readings[i] == Reading::numeric;
    const Report report = verify(*wrong, one);
    cell.found[i] = !report.passed();
    if (!cell.found[i]) cell.why[i] = why_missed(all_readings[i], cell, report);
  }
  return cell;
}

// Shapes that hide little: heads * head_dim is not hidden, kv heads are shared at some tp, parts
// are unequal, sizes differ. --------------------------------------------------------------------

[[nodiscard]] inline std::vector<LayerSpec> shapes_of(const std::string& layer) {
  LayerSpec s;
  s.layer = layer;
  s.tokens = 3;
  std::vector<LayerSpec> out;
  const auto add = [&](auto change) {
    LayerSpec next = s;
    change(next);
    for (const bool bias : {false, true}) {
      if (bias && (layer == "embedding" || layer == "norm")) continue;
      next.bias = bias;
      out.push_back(next);
    }
  };
  if (layer == "qkv") {
    for (const char* disk : {"", "q:kv*g*d + k:kv*d + v:kv*m", "kv*(q:g*d + k:d + v:m)"}) {
      add([&](LayerSpec& x) { x.qkv = {32, 6, 8, 2, 0}, x.disk = disk; });
      add([&](LayerSpec& x) { x.qkv = {5, 2, 12, 4, 3}, x.disk = disk; });
    }
    add([](LayerSpec& x) { x.qkv = {8, 2, 4, 4, 0}, x.disk = "h*(q:d + k:d + v:m)"; });
    add([](LayerSpec& x) { x.qkv = {8, 2, 4, 4, 0}; });
  } else if (layer == "merged") {
    add([](LayerSpec& x) { x.in = 5, x.parts = {{"gate", 12}, {"up", 8}}; });
    for (const char* disk : {"", "gate:n0 + up:n1", "i*(gate + up)"})
      add([&](LayerSpec& x) { x.in = 6, x.parts = {{"gate", 12}, {"up", 12}}, x.disk = disk; });
    add([](LayerSpec& x) {
      x.in = 4, x.parts = {{"gate", 8}, {"up", 16}}, x.gather_output = true;
    });
  } else if (layer == "mlp") {
    for (const char* disk : {"", "i*(gate + up)"})
      add([&](LayerSpec& x) { x.qkv.hidden = 5, x.intermediate = 24, x.disk = disk; });
  } else if (layer == "row") {
    add([](LayerSpec& x) { x.in = 24, x.out = 5; });
    add([](LayerSpec& x) { x.in = x.out = 24, x.input_is_parallel = false; });
  } else if (layer == "embedding" || layer == "lm_head") {
    // A last rank that is short, ranks of padding alone, and no padding.
    for (const char* cut : {"padded(24)", "padded(16*tp)", "even"})
      add([&](LayerSpec& x) {
        x.qkv.hidden = 5, x.vocab_cut = cut, x.vocab = x.vocab_cut == "even" ? 24 : 37;
      });
    add([](LayerSpec& x) {
      x.qkv.hidden = 5, x.vocab = 21, x.vocab_cut = "padded(8)", x.gather_output = true;
    });
  } else if (is_decoder_layer(layer)) {
    // Two sequences; window, norm and MLP of one kind, then of the other.
    s.tokens = 5;
    add([](LayerSpec& x) {
      x.qkv = {20, 6, 8, 2, 0}, x.intermediate = 24;
      x.decoder.attention.rope = RopeSpec{4};
    });
    if (layer == "norm") return out;
    add([](LayerSpec& x) {
      x.qkv = {7, 4, 12, 4, 3}, x.intermediate = 12, x.chunk = 2;
      x.decoder.attention.rope = RopeSpec{4, RopeStyle::interleaved};
      x.decoder.norm = NormKind::layer, x.decoder.gated = false;
      x.decoder.activation = Activation::gelu, x.decoder.parallel_residual = x.layer == "decoder";
    });
  } else if (layer == "column") {
    add([](LayerSpec& x) { x.in = 5, x.out = 24; });
    add([](LayerSpec& x) { x.in = x.out = 24, x.gather_output = true; });
  } else {
    add([](LayerSpec& x) { x.in = 5, x.out = 12; });
    add([](LayerSpec& x) { x.in = x.out = 12; });
  }
  return out;
}

#if defined(__SANITIZE_ADDRESS__)
constexpr std::array<int, 2> tps{2, 4};
#else
constexpr std::array<int, 5> tps{1, 2, 3, 4, 8};
#endif

/// Every cell of one fault: its layers, their shapes, and the shapes that show it.
[[nodiscard]] inline std::vector<Cell> cells_of(const Fault& fault) {
  std::vector<Cell> cells;
  for (const std::string& layer : fault.layers)
    for (const LayerSpec& shape : shapes_of(layer)) {
      std::vector<std::string> seen;  // needs and shows make shapes alike
      for (const int tp : tps)
        for (const bool showing : {false, true}) {
          LayerSpec spec = shape;
          spec.tp = tp;
          spec = showing ? spec_for_fault(spec, fault.name) : with_parts_of_fault(spec, fault.name);
          const std::string id = shell_line(replay_command(spec));
          if (!violations(spec).empty() || std::find(seen.begin(), seen.end(), id) != seen.end())
            continue;
          seen.push_back(id);
          try {  // a layout on disk may not fit the sizes that show the fault
            (void)cli::subject_of(spec, "");
          } catch (const LayoutError&) {
            continue;
          }
          cells.push_back(judge_cell(spec, fault.name));
        }
    }
  return cells;
}

}  // namespace tpsim::testing
