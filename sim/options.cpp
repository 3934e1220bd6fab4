// SPDX-License-Identifier: MIT
#include "sim/options.hpp"

#include <cctype>

#include <fmt/format.h>

#include <tpsim/version.hpp>

#include "sim/text.hpp"

namespace tpsim::cli {

const std::vector<Option>& options() {
  static const std::vector<Option> table{
      {"what", "tp", "N",
       "number of tensor-parallel ranks, 1 to 512; of plan and check a list, or all [1 to 64]"},
      {"what", "layer", "NAME",
       "column, row, merged, qkv, replicated, mlp, embedding, lm_head, norm, attention, decoder, "
       "or all of a block"},
      {"what", "toy", "", "the tiny numbers of the teaching examples; prints the matrices"},
      {"what", "fault", "NAME", "put this fault in and see it found ('tpsim list faults')"},
      {"shape", "model", "NAME", "sizes of this model ('tpsim list models') [llama-3-8b]"},
      {"shape", "hidden", "N", "width of the residual stream"},
      {"shape", "heads", "N", "query heads"},
      {"shape", "kv-heads", "N", "key and value heads"},
      {"shape", "head-dim", "N", "size of a query or key head"},
      {"shape", "v-head-dim", "N", "size of a value head [head-dim]"},
      {"shape", "intermediate", "N", "width of the MLP"},
      {"shape", "in", "N", "input columns of column, row, merged and replicated"},
      {"shape", "out", "N", "output rows of column, row and replicated; of synth a folder"},
      {"shape", "parts", "N,N,...", "rows of each part of merged [intermediate,intermediate]"},
      {"shape", "vocab", "N", "rows of the vocabulary"},
      {"shape", "vocab-cut", "RULE",
       "even, padded(64), padded(128*tp) or 'padded(64) last' [even]"},
      {"shape", "tokens", "N",
       "tokens in the batch [16]; of run the prompt's ids, 1,2,3; of plan their number [1024]"},
      {"layer options", "bias", "", "the layer has a bias"},
      {"layer options", "skip-bias-add", "", "the caller adds the bias"},
      {"layer options", "gather-output", "",
       "column, merged and lm_head: every rank gets all columns"},
      {"layer options", "input-not-parallel", "", "row: x is whole, each rank takes its columns"},
      {"layer options", "no-reduce-results", "", "row: the caller sums the partial results"},
      {"layer options", "tied", "", "lm_head: its weight is the embedding's"},
      {"layer options", "argmax", "", "lm_head: token ids on every rank, no logits are gathered"},
      {"layer options", "last-token", "", "lm_head: of each of two sequences the last token alone"},
      {"layer options", "disk", "EXPR",
       "order of the fused tensor on disk, 'kv*(q:g*d + k:d + v:d)'"},
      {"decoder options", "qk-norm", "KIND",
       "attention: q and k are not normed (none), head by head (head) or over all heads together "
       "(full); norm: full is that of all query heads [the model's]"},
      {"decoder options", "rotary-dim", "N",
       "attention: columns of a head that turn with the position [head-dim]"},
      {"decoder options", "no-rope", "", "attention: heads do not turn"},
      {"decoder options", "window", "N", "attention: positions that a token sees, itself included"},
      {"decoder options", "alibi", "", "attention: scores fall with the distance, by head"},
      {"decoder options", "sinks", "", "attention: a learned logit for each query head"},
      {"decoder options", "chunk", "N",
       "attention: new tokens of a sequence in a step; 1 is decoding, 0 one prefill [0]"},
      {"decoder options", "qkv-bias", "", "attention: q, k and v have a bias"},
      {"decoder options", "o-bias", "", "attention: its output projection has one"},
      {"decoder options", "mlp-bias", "", "decoder: the linear layers of its MLP have one"},
      {"decoder options", "norm", "KIND",
       "norm and decoder: rms, layer or layer_without_bias [the model's]"},
      {"decoder options", "plain-mlp", "", "decoder: up and down, without gate"},
      {"decoder options", "activation", "NAME", "decoder: silu, gelu or gelu_tanh [the model's]"},
      {"decoder options", "parallel-residual", "",
       "decoder: attention and MLP both read its input; one all_reduce"},
      {"plan", "rules", "ENGINE",
       "nano-vllm, vllm, megatron or transformers: whose rules a tp has to keep [vllm]"},
      {"plan", "ep", "N",
       "expert parallelism: ranks that have whole experts, in place of a part of each"},
      {"plan", "bandwidth", "GB/S", "of a rank's memory, for estimated times [3350: H100 SXM]"},
      {"plan", "flops", "TFLOP/S",
       "of a rank, without sparsity [989: H100 SXM in bf16; 67 for f32 and f64 weights]"},
      {"plan", "link", "GB/S", "that a rank sends [450: NVLink of an H100, one direction]"},
      {"plan", "latency", "US", "microseconds of a collective without its bytes [10]"},
      {"plan", "plan", "FILE", "what the config and the tensors mean, for another architecture"},
      {"check", "full", "", "the exact reading at full size, too"},
      {"run", "generate", "K", "tokens to choose after the prompt, the likeliest each [0]"},
      {"synth", "layers", "N", "decoder layers [the model's]"},
      {"synth", "max-shard-size", "BYTES", "tensors of one file: 500MB, 5GB, 2GiB, ... [5GB]"},
      {"synth", "force", "", "overwrite the checkpoint that is there"},
      {"real weights", "weights", "DIR", "take the tensors from this Hugging Face checkpoint"},
      {"real weights", "module", "PATH", "the module that owns them: model.layers.0.self_attn"},
      {"how", "reading", "LIST", "static, exact, numeric [all that apply]"},
      {"how", "dtype", "TYPE",
       "of the numeric reading: f32, bf16 or f16, of run f64, too [f32]; of synth [the config's]"},
      {"how", "all-reduce", "ORDER",
       "of the numeric reading's sums: rank, ring (as NCCL) or f32 (rounded once) [rank]"},
      {"how", "seed", "N", "of random weights and inputs [1]"},
      {"how", "backend", "NAME",
       "who computes the numeric reading and 'run': eigen or cuda [eigen]"},
      {"how", "tf32", "",
       "of --backend cuda in f32: products may use TF32, with factors of 11 bits"},
      {"how", "comm", "NAME",
       "where ranks live: virtual (this process), mpi or nccl (one process each, under mpirun -np "
       "N "
       "or tpsim-nccl-run -n N, which is the tp) [virtual]"},
      {"output", "json", "", "one JSON object on stdout and nothing else"},
      {"output", "html", "FILE", "also write a self-contained page"},
      {"output", "junit", "FILE", "also write a JUnit report"},
      {"output", "color", "WHEN", "auto, always or never [auto]"},
      {"output", "quiet", "", "verdict only (-q)"},
      {"output", "verbose", "", "every finding and every rank"},
      {"output", "help", "[GROUP]", "this text, or one group of options (-h)"},
      {"output", "version", "", "version"},
  };
  return table;
}

std::vector<std::string> option_groups() {
  std::vector<std::string> groups;
  for (const Option& o : options())
    if (groups.empty() || groups.back() != o.group) groups.emplace_back(o.group);
  return groups;
}

std::string short_help_text() {
  return "tpsim simulates and verifies tensor-parallel layouts of transformer layers.\n"
         "usage: tpsim --tp N --layer NAME [options]\n"
         "       tpsim --tp 4 --layer qkv\n"
         "       tpsim --tp 2 --layer qkv --weights DIR --module model.layers.0.self_attn\n"
         "       tpsim plan llama-3-8b\n"
         "       tpsim check llama-3-8b --tp 1,2,4\n"
         "       tpsim run DIR --tp 2 --tokens 1,2,3\n"
         "       tpsim --help\n";
}

std::string help_text(std::string_view group) {
  std::string out;
  if (group.empty())
    out = fmt::format(
        "tpsim {}: simulates and verifies tensor-parallel layouts of transformers\n\n"
        "Examples\n"
        "  tpsim --tp 4 --layer qkv                        one layer, all readings\n"
        "  tpsim --tp 2 --layer row --toy                  tiny numbers, matrices shown\n"
        "  tpsim --tp 4 --layer mlp --model qwen3-0.6b     sizes of another model\n"
        "  tpsim --tp 4 --layer qkv --fault rank-zero      see a fault found\n"
        "  tpsim --tp 2 --layer qkv --weights DIR --module model.layers.0.self_attn\n\n"
        "Usage\n"
        "  tpsim --tp N --layer NAME [options]\n"
        "  tpsim plan MODEL                                which tp a model can use\n"
        "  tpsim check MODEL --tp 1,2,4                    a whole model, all readings\n"
        "  tpsim run DIR --tp N --tokens 1,2,3             forward pass with real weights\n"
        "  tpsim synth MODEL --out DIR                     a checkpoint of random weights\n"
        "  tpsim explain CHECK                             what a check means\n"
        "  tpsim list layers|models|checks|faults          what exists\n",
        TPSIM_VERSION);
  std::string last;
  for (const Option& o : options()) {
    if (!group.empty() && o.group != group) continue;
    if (o.group != last) {
      last = o.group;
      out += fmt::format("{}{}{}\n", out.empty() ? "" : "\n",
                         static_cast<char>(std::toupper(last[0])), last.substr(1));
    }
    const std::string left =
        fmt::format("--{}{}{}", o.name,
                    o.argument.starts_with('[') ? "[="
                    : o.argument.empty()        ? ""
                                                : " ",
                    o.argument.starts_with('[') ? o.argument.substr(1) : o.argument);
    out += fmt::format("  {:<24}{}\n", left, wrapped(std::string(o.help), 26, 26));
  }
  if (group.empty())
    out += "\nExit status: 0 verified, 1 a check found a fault, 2 cannot ask, 3 bug in tpsim.\n";
  return out;
}

}  // namespace tpsim::cli
