// SPDX-License-Identifier: MIT
// Every linear module of the two real checkpoints, at every legal tp: the golden activations that
// transformers computed come out again, within a derived bound.
#include <cmath>
#include <fstream>
#include <iterator>

#include <tpsim/checkpoint/checkpoint.hpp>
#include <tpsim/verify/faults.hpp>
#include <tpsim/verify/run_ranks.hpp>
#include <tpsim/verify/verify.hpp>

#include <sim/specs.hpp>
#include <sim/subjects.hpp>
#include <tests/support/catch.hpp>
#include <tests/support/test_files.hpp>
#include <tests/support/torch_bounds.hpp>

namespace real_weights_tests {

using namespace tpsim;
using tpsim::test::test_data;

namespace {

using Numeric = Subject::Numeric;
using test::Reference;

constexpr Index tokens = 7;  // of the golden prompt

/// A module, the layer that it is, and the golden tensors: what went in, what came out.
struct Golden {
  std::string layer, module, input;
  std::vector<std::string> outputs;
};

std::vector<Golden> modules(Index layers) {
  std::vector<Golden> all{{"column", "lm_head", "lm_head.input", {"lm_head.output"}}};
  for (Index i = 0; i < layers; ++i) {
    const std::string p = "model.layers." + std::to_string(i) + ".", attn = p + "self_attn",
                      mlp = p + "mlp", down = mlp + ".down_proj", o = attn + ".o_proj";
    all.push_back({"qkv",
                   attn,
                   attn + ".q_proj.input",
                   {attn + ".q_proj.output", attn + ".k_proj.output", attn + ".v_proj.output"}});
    all.push_back({"row", o, o + ".input", {o + ".output"}});
    all.push_back({"merged",
                   mlp,
                   mlp + ".gate_proj.input",
                   {mlp + ".gate_proj.output", mlp + ".up_proj.output"}});
    all.push_back({"row", down, down + ".input", {down + ".output"}});
    all.push_back({"mlp", mlp, mlp + ".gate_proj.input", {down + ".output"}});
  }
  return all;
}

LayerSpec spec_of(const std::string& checkpoint, const Golden& g) {
  LayerSpec spec;
  spec.layer = g.layer;
  spec.tokens = tokens;
  cli::fill_from_checkpoint(spec, test_data(checkpoint), g.module);
  return spec;
}

struct Comparison {
  Index compared = 0, outside = 0;
  double largest_ratio = 0;                          // of a difference to its bound
  std::vector<std::pair<std::size_t, Index>> wrong;  // (result, column) of golden, with repeats
};

/// Runs the layer on virtual ranks; each rank's columns against the golden columns that it must
/// return, in order.
Comparison compare_with_golden(const Subject& subject, const LayerSpec& spec,
                               const SafetensorsFile& file, const Golden& g,
                               const std::vector<DiskTensor>& true_tensors) {
  EigenOptions options;
  options.track_bounds = true;
  const CheckpointTensor input = file.tensor(g.input);
  REQUIRE(input.shape == Shape(tokens, subject.input_width));
  const auto whole_input = [&](auto& b) { return b.activation(*input.values, input.shape); };
  const auto runs = run_ranks<Numeric>(
      subject, subject.tensors,
      [&](int rank) { return std::make_unique<Numeric>(rank, DType::f32, options); }, whole_input,
      [&](std::size_t, Numeric&, ModuleOn<Numeric>& module) {
        for (const auto& [name, param] : module.params()) CHECK(param->count_poison() == 0);
      });
  REQUIRE(runs.findings.empty());

  Reference reference(0, DType::f64, options);
  const auto torch = test::torch_modules(reference, spec, whole_input(reference),
                                         full_params(reference, true_tensors));
  REQUIRE(torch.size() == g.outputs.size());
  REQUIRE(subject.outputs.size() == g.outputs.size());
  Comparison result;
  for (std::size_t r = 0; r < runs.outputs.size(); ++r) {
    const Numeric::Tensor& ours = *runs.outputs[r];
    REQUIRE(ours.value.rows() == tokens);
    REQUIRE(ours.has_bound());
    Index column = 0;
    for (std::size_t k = 0; k < g.outputs.size(); ++k) {
      const CheckpointTensor golden = file.tensor(g.outputs[k]);
      REQUIRE(golden.shape == Shape(tokens, torch[k].value.cols()));
      const auto want = reference.activation(*golden.values, golden.shape).value;
      for (const Run& run : subject.outputs[k].columns[r])
        for (Index i = 0; i < run.length; ++i, ++column) {
          REQUIRE(column < ours.value.cols());
          const Index from = run.at(i);
          bool good = true;
          for (Index t = 0; t < tokens; ++t) {
            const double difference =
                std::abs(static_cast<double>(ours.value(t, column)) - want(t, from));
            const double bound = ours.bound(t, column) + torch[k].bound(t, from);
            result.largest_ratio = std::max(result.largest_ratio, difference / bound);
            ++result.compared;
            if (!(difference <= bound)) ++result.outside, good = false;
          }
          if (!good) result.wrong.emplace_back(k, from);
        }
    }
    REQUIRE(column == ours.value.cols());  // nothing more and nothing less than declared
  }
  return result;
}

/// The tensor `name`, from a copy of its file in memory in which the last bit of a bf16 mantissa
/// (bit 16 of an f32) is flipped in the largest element of row `row`.
std::shared_ptr<const Values> with_one_bit_flipped(const CheckpointTensor& tensor, Index row) {
  std::ifstream in(tensor.file, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(in), {}};
  std::vector<std::byte> bytes(content.size());
  std::memcpy(bytes.data(), content.data(), content.size());
  std::vector<double> numbers(static_cast<std::size_t>(tensor.shape.cols()));
  tensor.values->read(row, 0, std::span<double>(numbers));
  const auto largest = std::max_element(
      numbers.begin(), numbers.end(), [](double a, double b) { return std::abs(a) < std::abs(b); });
  const SafetensorsHeader header = parse_safetensors_header(bytes, "copy");
  const SafetensorsEntry* entry = header.find(tensor.name);
  REQUIRE(entry != nullptr);
  const Index size = bytes_of(tensor.dtype);
  const Index at = header.data_begin + entry->begin +
                   size * (row * tensor.shape.cols() + (largest - numbers.begin()));
  bytes[static_cast<std::size_t>(at + size - 2)] ^= std::byte{1};
  return SafetensorsFile(std::move(bytes), "copy").tensor(tensor.name).values;
}

const std::vector<std::string> checkpoints{"tiny-qwen3", "tiny-qwen3-bias"};

}  // namespace

TEST_CASE("real weights: every linear module gives the golden activations at every legal tp") {
  for (const std::string& name : checkpoints) {
    const SafetensorsFile file(test_data(name) / "golden.safetensors");
    const Checkpoint checkpoint(test_data(name));
    Index compared = 0;
    double largest = 0;
    for (const Golden& g : modules(static_cast<Index>(checkpoint.model().kind_of_layer.size()))) {
      LayerSpec spec = spec_of(name, g);
      const std::vector<int> legal = legal_tp(spec, 512);
      REQUIRE(legal.size() >= 4);
      if (g.layer == "qkv") CHECK(legal == std::vector<int>{1, 2, 4, 8});
      for (const int tp : legal) {
        spec.tp = tp;
        INFO(name << " " << g.module << " as " << g.layer << " at tp " << tp);
        const auto subject = make_subject(spec);
        const Comparison c = compare_with_golden(*subject, spec, file, g, subject->tensors);
        CHECK(c.compared > 0);
        CHECK(c.outside == 0);
        compared += c.compared;
        largest = std::max(largest, c.largest_ratio);
      }
    }
    INFO(name << ": " << compared << " elements, largest difference " << largest << " of bound");
    CHECK(compared > 10'000);
    CHECK(largest > 0);  // torch sums in another order: all bits equal would mean no comparison
    CHECK(largest < 1);
  }
}

TEST_CASE("real weights: every reading verifies every linear module at every legal tp") {
  for (const std::string& name : checkpoints) {
    const Checkpoint checkpoint(test_data(name));
    for (const Golden& g : modules(static_cast<Index>(checkpoint.model().kind_of_layer.size()))) {
      LayerSpec spec = spec_of(name, g);
      for (const int tp : legal_tp(spec, 512)) {
        spec.tp = tp;
        INFO(name << " " << g.module << " as " << g.layer << " at tp " << tp);
        const Report report = verify(*make_subject(spec));
        CHECK(report.passed());
        for (const char* id : {"cover", "order", "state", "exact", "integer", "rounding"}) {
          REQUIRE(report.find(id) != nullptr);
          CHECK(report.find(id)->result == Outcome::pass);
          CHECK(report.find(id)->compared > 0);
        }
      }
    }
  }
}

TEST_CASE("real weights: one bit changed in one weight fails the comparison in its column alone") {
  for (const std::string& name : checkpoints) {
    const SafetensorsFile file(test_data(name) / "golden.safetensors");
    const Checkpoint checkpoint(test_data(name));
    for (const Golden& g : modules(1)) {
      LayerSpec spec = spec_of(name, g);
      const std::vector<DiskTensor> true_tensors = make_subject(spec)->tensors;
      const std::string key = true_tensors.front().stored->name;  // "weight", "q_proj.weight"
      const CheckpointTensor tensor = checkpoint.tensor(g.module + "." + key);
      const Index row = tensor.shape.rows() / 2;
      spec.values[key] = with_one_bit_flipped(tensor, row);
      for (const int tp : legal_tp(spec, 512)) {
        spec.tp = tp;
        INFO(name << " " << g.module << " as " << g.layer << " at tp " << tp);
        const Comparison c = compare_with_golden(*make_subject(spec), spec, file, g, true_tensors);
        CHECK(c.outside > 0);
        if (g.layer == "mlp") continue;  // through down_proj it reaches every column
        const std::size_t holders = g.layer == "row" ? static_cast<std::size_t>(tp) : 1;
        CHECK(c.wrong == std::vector<std::pair<std::size_t, Index>>(holders, {0, row}));
      }
    }
  }
}

TEST_CASE("real weights: exchanged parts and wrong sums do not give the golden activations") {
  // fault and the smallest tp that it shows at
  const std::vector<std::pair<std::string, int>> wrong{{"gate-up-exchanged", 1},
                                                       {"k-v-exchanged", 1},
                                                       {"missing-all-reduce", 2},
                                                       {"doubled-all-reduce", 2}};
  const SafetensorsFile file(test_data("tiny-qwen3") / "golden.safetensors");
  Index shown = 0;
  for (const Golden& g : modules(2)) {
    LayerSpec spec = spec_of("tiny-qwen3", g);
    for (const auto& [fault, from] : wrong) {
      const auto it = std::find_if(faults().begin(), faults().end(),
                                   [&](const Fault& f) { return f.name == fault; });
      REQUIRE(it != faults().end());
      if (!it->applies_to(g.layer)) continue;
      for (const int tp : legal_tp(spec, 512)) {
        spec.tp = tp;
        INFO(g.module << " as " << g.layer << " at tp " << tp << " with " << fault);
        const auto subject = make_faulty_subject(spec, fault);
        const Comparison c = compare_with_golden(*subject, spec, file, g, subject->tensors);
        CHECK((c.outside > 0) == (tp >= from));
        ++shown;
      }
    }
  }
  CHECK(shown > 50);
}

}  // namespace real_weights_tests
