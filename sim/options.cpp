// SPDX-License-Identifier: MIT
#include "sim/options.hpp"

#include <cctype>

#include <fmt/format.h>

#include <tpsim/version.hpp>

#include "sim/text.hpp"

namespace tpsim::cli {

const std::vector<Option>& options() {
  static const std::vector<Option> table{
      {"what", "tp", "N", "number of tensor-parallel ranks, 1 to 512"},
      {"what", "layer", "NAME", "column, row, merged, qkv, replicated, mlp or all"},
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
      {"shape", "out", "N", "output rows of column, row and replicated"},
      {"shape", "parts", "N,N,...", "rows of each part of merged [intermediate,intermediate]"},
      {"shape", "tokens", "N", "tokens in the batch [16]"},
      {"layer options", "bias", "", "the layer has a bias"},
      {"layer options", "skip-bias-add", "", "the caller adds the bias"},
      {"layer options", "gather-output", "", "column and merged: every rank gets all columns"},
      {"layer options", "input-not-parallel", "", "row: x is whole, each rank takes its columns"},
      {"layer options", "no-reduce-results", "", "row: the caller sums the partial results"},
      {"layer options", "disk", "EXPR",
       "order of the fused tensor on disk, 'kv*(q:g*d + k:d + v:d)'"},
      {"real weights", "weights", "DIR", "take the tensors from this Hugging Face checkpoint"},
      {"real weights", "module", "PATH", "the module that owns them: model.layers.0.self_attn"},
      {"how", "reading", "LIST", "static, exact, numeric [all that apply]"},
      {"how", "dtype", "TYPE", "of the numeric reading: f32, bf16 or f16 [f32]"},
      {"how", "seed", "N", "of random weights and inputs [1]"},
      {"how", "backend", "NAME", "eigen [eigen]"},
      {"how", "comm", "NAME", "virtual [virtual]"},
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
