// SPDX-License-Identifier: MIT
#include "quantization_config.hpp"

#include <array>

namespace tpsim::checkpoint_detail {
namespace {

// [n, k] of the output rows and input columns of a block.
void read_block(ConfigReader& in, Quantization& q) {
  const nlohmann::json* block = in.list("weight_block_size");
  if (block == nullptr) return;
  const auto size = [&](std::size_t i) -> Index {
    const nlohmann::json& n = (*block)[i];
    return n.is_number_unsigned() && n.get<std::uint64_t>() <= static_cast<std::uint64_t>(max_size)
               ? n.get<Index>()
               : 0;
  };
  if (block->size() != 2 || size(0) < 1 || size(1) < 1)
    return in.problem("weight_block_size is no pair of positive integers");
  q.block_n = size(0), q.block_k = size(1);
}

void read_groups(ConfigReader& in, Quantization& q) {
  q.bits = in.size("bits", !in.has("w_bit"), 8);
  if (!in.has("bits") && in.has("w_bit")) q.bits = in.size("w_bit", true, 8);
  if (q.bits == 1) in.problem("bits is 1; legal: 2 to 8"), q.bits = 0;
  const char* key = in.has("q_group_size") && !in.has("group_size") ? "q_group_size" : "group_size";
  q.group_size = in.is_minus_one(key) ? 0 : in.size(key, true);
  q.act_order = in.flag("desc_act", false);
}

}  // namespace

Quantization read_quantization(ConfigReader& in, Problems& problems) {
  Quantization q;
  const nlohmann::json* object = in.object("quantization_config");
  if (object == nullptr) return q;
  ConfigReader inner(*object, problems, "quantization_config.");
  const std::string method = inner.word("quant_method");
  constexpr std::array<QuantMethod, 4> known{QuantMethod::gptq, QuantMethod::awq, QuantMethod::fp8,
                                             QuantMethod::mxfp4};
  for (const QuantMethod m : known)
    if (method == name(m)) q.method = m;
  if (q.method == QuantMethod::none) {
    inner.problem(
        inner.has("quant_method")
            ? fmt::format("quant_method {} is unknown; known: gptq, awq, fp8, mxfp4", shown(method))
            : std::string("quant_method is missing; known: gptq, awq, fp8, mxfp4"));
    return q;
  }
  if (q.method == QuantMethod::gptq || q.method == QuantMethod::awq) read_groups(inner, q);
  if (q.method == QuantMethod::fp8) read_block(inner, q);
  return q;
}

}  // namespace tpsim::checkpoint_detail
