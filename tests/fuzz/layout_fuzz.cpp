// SPDX-License-Identifier: MIT
// libFuzzer target: layout expressions and cuts from untrusted text.
// Build with clang++ -fsanitize=fuzzer,address,undefined.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <tpsim/layout/cut.hpp>
#include <tpsim/layout/expression.hpp>
#include <vector>

namespace {

using tpsim::Index;

void require(bool law) {
  if (!law) std::abort();
}

void check_layout(std::string_view text) {
  const tpsim::LayoutExpr expr = tpsim::LayoutExpr::parse(text);
  const std::string normal = expr.str();
  // Blanks around '+' may take a text at the length limit over it.
  if (normal.size() <= text.size()) require(tpsim::LayoutExpr::parse(normal) == expr);
  const tpsim::Axes axes{{"kv", 2}, {"g", 3}, {"d", 4}, {"h", 6}, {"i", 5}, {"n", 0}, {"V", 101}};
  const tpsim::RowLayout layout = tpsim::bind_layout(expr, axes);
  if (layout.rows() > 4096) return;
  std::vector<int> seen(static_cast<std::size_t>(layout.rows()));
  for (const auto& part : layout.parts())
    for (const tpsim::Run& run : part.disk_rows)
      for (Index i = 0; i < run.length; ++i)
        require(seen.at(static_cast<std::size_t>(run.at(i)))++ == 0);
}

void check_cut(std::string_view text) {
  const tpsim::Cut cut = tpsim::Cut::parse(text);
  if (cut.str().size() <= text.size()) require(tpsim::Cut::parse(cut.str()) == cut);
  const std::vector<tpsim::AxisExtent> axes{{"kv", 6}, {"d", 4}};
  for (Index tp = 1; tp <= 8; ++tp) {
    if (!tpsim::cut_violations(cut, axes, tp).empty()) continue;
    Index rows = 0;
    for (Index rank = 0; rank < tp; ++rank) rows += cut_rows(cut, axes, tp, rank).rows.size();
    require(rows == 24 * multiplicity(cut, axes, tp));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    check_layout(text);
  } catch (const tpsim::LayoutError&) {
  }
  try {
    check_cut(text);
  } catch (const tpsim::LayoutError&) {
  }
  return 0;
}
