// SPDX-License-Identifier: MIT
// Checkpoints that transformers wrote, and the safetensors format.
#include <tpsim/checkpoint/module.hpp>

#include <cmath>
#include <limits>
#include <set>

#include <tests/support/catch.hpp>
#include <tests/support/test_files.hpp>

namespace tpsim::test::checkpoint_tests {
namespace {

struct Matrix {
  Shape shape;
  std::vector<double> values;
  [[nodiscard]] double at(Index row, Index col) const {
    return values[static_cast<std::size_t>(row * shape.cols() + col)];
  }
};

Matrix matrix(const CheckpointTensor& tensor) {
  Matrix m{tensor.shape, {}};
  std::vector<double> row(static_cast<std::size_t>(tensor.shape.cols()));
  for (Index r = 0; r < tensor.shape.rows(); ++r) {
    tensor.values->read(r, 0, std::span<double>(row));
    m.values.insert(m.values.end(), row.begin(), row.end());
  }
  return m;
}

// max |y - (x W^T + b)| / bound, where the bound holds for float32 sums in any order: each of the
// K products and K sums (bias included) rounds with 2^-24; the factor 4 is slack for both.
double golden_ratio(const SafetensorsFile& golden, const std::string& name,
                    const LinearWeights& linear) {
  const Matrix x = matrix(golden.tensor(name + ".input"));
  const Matrix y = matrix(golden.tensor(name + ".output"));
  const Matrix w = matrix(linear.weight);
  const Index tokens = x.shape.rows(), in = w.shape.cols(), out = w.shape.rows();
  REQUIRE(x.shape == Shape(tokens, in));
  REQUIRE(y.shape == Shape(tokens, out));
  std::vector<double> bias(static_cast<std::size_t>(out), 0.0);
  if (linear.bias) bias = matrix(*linear.bias).values;
  double worst = 0;
  for (Index t = 0; t < tokens; ++t)
    for (Index o = 0; o < out; ++o) {
      double sum = bias[static_cast<std::size_t>(o)], size = std::abs(sum);
      for (Index k = 0; k < in; ++k) {
        sum += x.at(t, k) * w.at(o, k);
        size += std::abs(x.at(t, k) * w.at(o, k));
      }
      const double bound = 4 * static_cast<double>(in) * std::ldexp(size, -24);
      worst = std::max(worst, std::abs(y.at(t, o) - sum) / bound);
    }
  return worst;
}

std::vector<float> read_row(const CheckpointTensor& tensor, Index row) {
  std::vector<float> out(static_cast<std::size_t>(tensor.shape.cols()));
  tensor.values->read(row, 0, std::span<float>(out));
  return out;
}

TEST_CASE(
    "checkpoint: qwen3 files from transformers have the config and shapes they were made with") {
  const bool bias = GENERATE(false, true);
  const Checkpoint checkpoint(test_data(bias ? "tiny-qwen3-bias" : "tiny-qwen3"));
  const BoundModel& model = checkpoint.model();
  const DecoderShape& layer = model.shape.layers.front();
  const AttentionShape& a = layer.attention;
  CHECK(model.architecture == "qwen3");
  CHECK(layer.hidden() == (bias ? 40 : 32));
  CHECK(a.qkv.heads == 8);
  CHECK(a.qkv.kv_heads == (bias ? 4 : 2));
  CHECK(a.qkv.head_dim == (bias ? 10 : 6));
  CHECK(a.qkv.heads * a.qkv.head_dim != layer.hidden());
  CHECK(layer.intermediate == (bias ? 48 : 24));
  CHECK(model.kind_of_layer.size() == 2);
  CHECK(a.qkv_bias == bias);
  CHECK(a.o_bias == bias);
  CHECK_FALSE(layer.mlp_bias);
  CHECK(model.dtype == (bias ? DType::f32 : DType::bf16));
  CHECK(checkpoint.names().size() == (bias ? 33U : 25U));
  for (const std::string& name : checkpoint.names())
    CHECK(checkpoint.tensor(name).dtype == *model.dtype);
}

TEST_CASE("checkpoint: stored weights reproduce the golden activations of every linear layer") {
  const std::string model = GENERATE("tiny-qwen3", "tiny-qwen3-bias");
  const Checkpoint checkpoint(test_data(model));
  const SafetensorsFile golden(test_data(model) / "golden.safetensors");
  int compared = 0;
  const auto check = [&](const std::string& module, const LinearWeights& linear) {
    INFO(module);
    CHECK(golden_ratio(golden, module, linear) <= 1);
    ++compared;
  };
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    for (const std::string module : {"self_attn", "mlp"})
      for (const LinearWeights& linear : read_module(checkpoint, layer + module).linears)
        check(layer + module + "." + linear.name, linear);
    const std::string o_proj = layer + "self_attn.o_proj";
    check(o_proj, read_module(checkpoint, o_proj).linear("o_proj"));
  }
  check("lm_head", read_module(checkpoint, "lm_head").linear("lm_head"));
  CHECK(compared == 15);

  // The bound can see a fault: v is not k, and a bias left out shows.
  ModuleWeights qkv = read_module(checkpoint, "model.layers.0.self_attn");
  CHECK(golden_ratio(golden, "model.layers.0.self_attn.k_proj", qkv.linear("v_proj")) > 1000);
  if (model == "tiny-qwen3-bias") {
    qkv.linears[0].bias.reset();
    CHECK(golden_ratio(golden, "model.layers.0.self_attn.q_proj", qkv.linears[0]) > 1000);
  }
}

TEST_CASE("checkpoint: only the files with the tensors of the module are opened") {
  const Checkpoint checkpoint(test_data("tiny-qwen3"));
  CHECK(checkpoint.opened() == 0);
  (void)read_module(checkpoint, "model.layers.0.self_attn");
  CHECK(checkpoint.opened() == 1);
  (void)read_module(checkpoint, "model.layers.1.mlp");  // cut over files 3 and 4
  CHECK(checkpoint.opened() == 3);
}

TEST_CASE("checkpoint: the token ids of the golden prompt are known but are no weight") {
  const SafetensorsFile golden(test_data("tiny-qwen3") / "golden.safetensors");
  CHECK(golden.header().find("input_ids")->dtype == "I64");
  CHECK(golden.raw("input_ids").size() == 7 * 8);
  CHECK(missing([&] { (void)golden.tensor("input_ids"); }, {"is I64; weights can be F64, F32"}) ==
        "");
}

TEST_CASE("checkpoint: values outlive the checkpoint that gave them") {
  CheckpointTensor tensor;
  {
    const Checkpoint checkpoint(test_data("tiny-qwen3"));
    tensor = checkpoint.tensor("model.norm.weight");
  }
  CHECK(tensor.shape == Shape(32));
  CHECK(read_row(tensor, 31)[0] > 0.5F);
  const Logical meaning = std::make_shared<LogicalTensor>("norm", Shape(32));
  CHECK(full_tensor(tensor, meaning).shape() == Shape(32));
  CHECK_THROWS_AS(full_tensor(tensor, std::make_shared<LogicalTensor>("norm", Shape(33))),
                  LayoutError);
}

TEST_CASE("safetensors: every f16 and bf16 pattern converts exactly") {
  std::vector<std::uint16_t> patterns(65536);
  for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
  // One byte of padding leaves the data unaligned.
  const std::string header =
      R"({"h":{"dtype":"F16","shape":[2,32768],"data_offsets":[0,131072]},)"
      R"("b":{"dtype":"BF16","shape":[2,32768],"data_offsets":[131072,262144]}} )";
  const SafetensorsFile file(
      as_bytes(safetensors_bytes(header, packed(patterns) + packed(patterns))), "halves");
  const Matrix halves = matrix(file.tensor("h")), brains = matrix(file.tensor("b"));
  std::size_t wrong = 0;
  const auto expect = [&](double got, unsigned i, int exponent_bits, int fraction_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int fraction = static_cast<int>(i & ((1U << fraction_bits) - 1));
    const int exponent = static_cast<int>(i >> fraction_bits) & ((1 << exponent_bits) - 1);
    const double sign = i < 32768 ? 1 : -1;
    double want = sign * std::ldexp(exponent == 0 ? fraction : fraction + (1 << fraction_bits),
                                    std::max(exponent, 1) - bias - fraction_bits);
    if (exponent == (1 << exponent_bits) - 1)
      want = fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
    if (std::isnan(want) ? !std::isnan(got)
                         : got != want || std::signbit(got) != std::signbit(want))
      ++wrong;
  };
  for (unsigned i = 0; i < 65536; ++i) {
    expect(halves.values[i], i, 5, 10);
    expect(brains.values[i], i, 8, 7);
  }
  CHECK(wrong == 0);
  CHECK(file.tensor("b").values->bytes(1, 32767).size() == 2);
  CHECK(file.tensor("b").values->bytes(1, 32767)[1] == std::byte{0xFF});
}

TEST_CASE("safetensors: scalars and empty tensors and metadata and trailing spaces are legal") {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"scalar":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("d":{"data_offsets":[4,20],"dtype":"F64","shape":[1,2]},)"
      R"("none":{"dtype":"F32","shape":[0,5],"data_offsets":[4,4]}}   )";
  const SafetensorsFile file(
      as_bytes(safetensors_bytes(header, packed<float>({7}) + packed<double>({0.1, 1e300}))),
      "legal");
  CHECK(file.header().metadata.at("format") == "pt");
  CHECK(file.header().entries.size() == 3);
  CHECK(file.tensor("none").shape == Shape(0, 5));
  CHECK(matrix(file.tensor("d")).values == std::vector<double>{0.1, 1e300});
  CHECK(missing([&] { (void)file.tensor("scalar"); }, {"has 0 dimensions"}) == "");
  CHECK_THROWS_AS(file.tensor("d").values->bytes(1, 0), LayoutError);
  CHECK(SafetensorsFile(as_bytes(safetensors_bytes("{}")), "empty").header().entries.empty());
}

}  // namespace
}  // namespace tpsim::test::checkpoint_tests
