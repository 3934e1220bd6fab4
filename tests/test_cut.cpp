// SPDX-License-Identifier: MIT
// Declared cuts: every rule on shapes that do not divide, and the inverse.
#include <rapidcheck.h>

#include <map>
#include <tests/support/catch.hpp>
#include <tests/support/random_layout.hpp>
#include <tpsim/layout/cut.hpp>

namespace cut_tests {

using namespace tpsim;
using test::list;

namespace {

using AxesOf = std::vector<AxisExtent>;

// Real rows of every rank.
std::vector<Index> sizes(const char* cut, const AxesOf& axes, Index tp) {
  std::vector<Index> out;
  for (Index r = 0; r < tp; ++r) out.push_back(cut_rows(Cut::parse(cut), axes, tp, r).rows.size());
  return out;
}
std::vector<Index> padding(const char* cut, const AxesOf& axes, Index tp) {
  std::vector<Index> out;
  for (Index r = 0; r < tp; ++r) out.push_back(cut_rows(Cut::parse(cut), axes, tp, r).padding);
  return out;
}
std::vector<Violation> broken(const char* cut, const AxesOf& axes, Index tp) {
  return cut_violations(Cut::parse(cut), axes, tp);
}
using Sizes = std::vector<Index>;

// One of the rules, on three axes of which the first one or two are cut, and a legal tp.
struct Drawn {
  Cut cut;
  AxesOf axes;
  Index rows = 1, tp = 1;
};
Drawn any_cut() {
  Drawn d;
  d.cut.rule =
      *rc::gen::element(CutRule::whole, CutRule::even, CutRule::replicated, CutRule::padded,
                        CutRule::block, CutRule::chunk, CutRule::tensor_split);
  const auto cut_axes = d.cut.rule == CutRule::whole ? 0 : *rc::gen::inRange<std::size_t>(1, 3);
  for (const char* name : {"a", "b", "c"}) {
    d.axes.push_back({name, *rc::gen::inRange<Index>(1, 13)});
    d.rows *= d.axes.back().extent;
    if (d.axes.size() <= cut_axes) d.cut.axes.emplace_back(name);
  }
  if (d.cut.rule == CutRule::padded || d.cut.rule == CutRule::block)
    d.cut.size = *rc::gen::inRange<Index>(1, 9);
  if (d.cut.rule == CutRule::padded) {
    d.cut.times_tp = *rc::gen::arbitrary<bool>();
    d.cut.fill = *rc::gen::element(Fill::zero, Fill::last);
  }
  d.tp = *rc::gen::elementOf(legal_tp(d.cut, d.axes, 12));
  return d;
}

}  // namespace

TEST_CASE("cut: even cuts need every entry to go round") {
  const AxesOf q{{"kv", 4}, {"g", 3}, {"d", 8}};
  CHECK(sizes("kv*g even", q, 3) == Sizes{32, 32, 32});
  CHECK(cut_rows(Cut::parse("kv*g even"), q, 3, 1).rows == Runs::range(32, 64));
  CHECK(broken("kv even", q, 3) ==
        std::vector<Violation>{{"divide", "4 kv over 3 ranks leaves 1"}});
  CHECK(broken("kv*g even", {{"kv", 28}, {"g", 1}, {"d", 8}}, 8).size() == 1);
  CHECK(legal_tp(Cut::parse("h even"), {{"h", 28}, {"d", 8}}, 64) == Sizes{1, 2, 4, 7, 14, 28});
  // Groups of 8 in K = 96: 12 of them over 4 ranks fit, over 8 a cut would fall inside a group.
  CHECK(sizes("b even", {{"b", 12}, {"8", 8}}, 4) == Sizes{24, 24, 24, 24});
  CHECK(broken("b even", {{"b", 12}, {"8", 8}}, 8).size() == 1);
  CHECK(sizes("whole", q, 2) == Sizes{96, 96});
}

TEST_CASE("cut: kv heads are replicated by r over tp per head") {
  const AxesOf k{{"kv", 2}, {"d", 6}};
  const auto head = [&](const AxesOf& axes, Index tp, Index r) {
    return cut_rows(Cut::parse("kv replicated"), axes, tp, r).rows;
  };
  for (const Index r : {0, 1}) CHECK(head(k, 4, r) == Runs::range(0, 6));
  for (const Index r : {2, 3}) CHECK(head(k, 4, r) == Runs::range(6, 12));
  CHECK(head(k, 2, 1) == Runs::range(6, 12));
  CHECK(head({{"kv", 1}, {"d", 64}}, 71, 70) == Runs::range(0, 64));  // falcon-7b
  CHECK(multiplicity(Cut::parse("kv replicated"), k, 8) == 4);
  CHECK(multiplicity(Cut::parse("kv replicated"), k, 2) == 1);
  CHECK(broken("kv replicated", {{"kv", 4}, {"d", 6}}, 6) ==
        std::vector<Violation>{{"divide", "6 ranks over 4 kv leaves 2"}});
  CHECK(broken("kv replicated", {{"kv", 4}, {"d", 6}}, 3).size() == 1);
  CHECK(broken("s replicated", {{"s", 3}, {"n", 16}}, 5).size() == 1);  // state-space groups
  CHECK(broken("s replicated", {{"s", 2}, {"n", 16}}, 4).empty());
}

TEST_CASE("cut: padding is at the end and follows vLLM or Megatron") {
  const AxesOf v{{"V", 101}};
  CHECK(sizes("V padded(8) zero", v, 4) == Sizes{26, 26, 26, 23});
  CHECK(padding("V padded(8) zero", v, 4) == Sizes{0, 0, 0, 3});
  CHECK(cut_rows(Cut::parse("V padded(8)"), v, 4, 3).rows == Runs::range(78, 101));
  CHECK(broken("V padded(8)", v, 3) ==
        std::vector<Violation>{{"divide", "104 padded V over 3 ranks leaves 2"}});
  CHECK(sizes("V padded(8*tp) last", v, 3) == Sizes{40, 40, 21});
  CHECK(padding("V padded(8*tp) last", v, 3) == Sizes{0, 0, 19});
  CHECK(cut_rows(Cut::parse("V padded(8*tp) last"), v, 3, 2).fill == Fill::last);
  CHECK(sizes("V padded(64)", {{"V", 65}}, 4) == Sizes{32, 32, 1, 0});  // an empty rank
  CHECK(padding("V padded(64)", {{"V", 65}}, 4) == Sizes{0, 0, 31, 32});
  // gpt2: vLLM pads 50257 to 50304 = 64 * 786, Megatron at tp 8 to 51200. qwen3: 152576.
  CHECK(cut_rows(Cut::parse("V padded(64)"), {{"V", 50257}}, 2, 0).size() == 25152);
  CHECK(cut_rows(Cut::parse("V padded(128*tp) last"), {{"V", 50257}}, 8, 7).size() == 6400);
  CHECK(cut_rows(Cut::parse("V padded(128*tp) last"), {{"V", 151936}}, 8, 0).size() == 19072);
  CHECK(cut_rows(Cut::parse("V padded(64)"), {{"V", 32001}}, 3, 2).size() == 10688);
}

TEST_CASE("cut: ceil blocks leave the last ranks short or empty") {
  const auto blocks = [](Index n, Index tp, const char* cut) { return sizes(cut, {{"i", n}}, tp); };
  CHECK(blocks(2880, 4, "i block(32)") == Sizes{736, 736, 736, 672});  // gpt_oss
  CHECK(blocks(2880, 8, "i block(32)") == Sizes{384, 384, 384, 384, 384, 384, 384, 192});
  CHECK(blocks(2880, 3, "i block(32)") == Sizes{960, 960, 960});
  CHECK(blocks(29568, 2, "i block(128)") == Sizes{14848, 14720});
  CHECK(blocks(29568, 4, "i block(128)") == Sizes{7424, 7424, 7424, 7296});
  CHECK(blocks(1856, 4, "i block(64)") == Sizes{512, 512, 512, 320});
  CHECK(blocks(4304, 2, "i block(32)") == Sizes{2176, 2128});
  CHECK(blocks(4304, 4, "i block(32)") == Sizes{1088, 1088, 1088, 1040});
  CHECK(blocks(90, 4, "i block(4)") == Sizes{24, 24, 24, 18});
  CHECK(blocks(5, 4, "i block(2)") == Sizes{2, 2, 1, 0});
}

TEST_CASE("cut: chunk and tensor_split are two rules") {
  const auto split = [](Index n, Index tp, const char* cut) { return sizes(cut, {{"i", n}}, tp); };
  CHECK(split(5, 4, "i chunk") == Sizes{2, 2, 1, 0});
  CHECK(split(5, 4, "i tensor_split") == Sizes{2, 1, 1, 1});
  CHECK(split(6, 4, "i chunk") == Sizes{2, 2, 2, 0});
  CHECK(split(6, 4, "i tensor_split") == Sizes{2, 2, 1, 1});
  CHECK(split(2, 4, "i chunk") == Sizes{1, 1, 0, 0});
  CHECK(split(2, 4, "i tensor_split") == Sizes{1, 1, 0, 0});
  CHECK(split(30, 8, "i tensor_split") == Sizes{4, 4, 4, 4, 4, 4, 3, 3});  // experts
  CHECK(cut_rows(Cut::parse("i tensor_split"), {{"i", 30}}, 8, 6).rows == Runs::range(24, 27));
  CHECK(split(4304, 3, "i chunk") == Sizes{1435, 1435, 1434});
  CHECK(sizes("i chunk", {{"i", 5}, {"2", 2}}, 4) == Sizes{4, 4, 2, 0});
}

TEST_CASE("cut: ranks together hold the whole tensor and the inverse finds every row") {
  std::map<CutRule, int> met;
  REQUIRE(rc::check([&] {
    const Drawn d = any_cut();
    ++met[d.cut.rule];
    const Index copies = multiplicity(d.cut, d.axes, d.tp);
    RC_ASSERT(d.tp % copies == 0);
    Runs merged;
    std::map<Index, std::vector<Place>> held;
    bool padded = false;
    for (Index r = 0; r < d.tp; ++r) {
      const CutResult part = cut_rows(d.cut, d.axes, d.tp, r);
      RC_ASSERT((!padded || part.rows.empty()));  // padding comes at the end of the whole
      padded = padded || part.padding > 0;
      if (d.cut.rule == CutRule::padded)
        RC_ASSERT(part.size() == cut_rows(d.cut, d.axes, d.tp, 0).size());
      else
        RC_ASSERT(part.padding == 0);
      if (r % copies == 0) merged.append(part.rows);
      const std::vector<Index> rows = list(part.rows);
      for (std::size_t i = 0; i < rows.size(); ++i)
        held[rows[i]].push_back({r, static_cast<Index>(i)});
    }
    RC_ASSERT(merged.is_range(0, d.rows));
    for (Index row = 0; row < d.rows; ++row) {
      RC_ASSERT(static_cast<Index>(held[row].size()) == copies);
      RC_ASSERT(places(d.cut, d.axes, d.tp, row) == held[row]);
    }
    RC_ASSERT(Cut::parse(d.cut.str()) == d.cut);
  }));
  CHECK(met.size() == 7);
}

TEST_CASE("cut: every broken rule is named with the legal tp sizes") {
  CHECK(broken("d even", {{"h", 4}, {"d", 8}}, 2) ==
        std::vector<Violation>{{"names", "the cut 'd even' must name the outermost axes of h*d"}});
  CHECK(broken("kv*g*d*x even", {{"kv", 4}, {"g", 1}, {"d", 8}}, 1).size() == 1);
  CHECK(broken("d even", {{"h", 0}, {"d", 8}}, 0).size() == 3);
  CHECK(broken("a padded(281474976710656*tp)", {{"a", 5}}, 2).size() == 1);
  CHECK(broken("a even", {{"a", Index{1} << 40}, {"b", Index{1} << 40}}, 1).size() == 1);
  try {
    static_cast<void>(cut_rows(Cut::parse("h even"), {{"h", 28}, {"d", 128}}, 8, 0));
    FAIL("no error");
  } catch (const LayoutError& e) {
    CHECK(e.violations() == std::vector<Violation>{{"divide", "28 h over 8 ranks leaves 4"}});
    CHECK(e.hint() == "legal tp up to 64: 1, 2, 4, 7, 14, 28");
  }
  const Cut huge = Cut::parse("a block(281474976710656)");
  CHECK(cut_rows(huge, {{"a", 5}, {"b", 3}}, 65536, 0).rows.size() == 15);
  CHECK(cut_rows(huge, {{"a", 5}, {"b", 3}}, 65536, 65535).rows.empty());
  const Cut even = Cut::parse("a even");
  CHECK_THROWS_AS(cut_rows(even, {{"a", 4}}, 2, 2), LayoutError);
  CHECK_THROWS_AS(cut_rows(even, {{"a", 4}}, 2, -1), LayoutError);
  CHECK_THROWS_AS(places(even, {{"a", 4}}, 2, 4), LayoutError);
  CHECK_THROWS_AS(multiplicity(even, {{"a", 4}}, 3), LayoutError);
}

TEST_CASE("cut: an error in the text points at the column") {
  const std::vector<std::pair<const char*, std::size_t>> cases{
      {"", 0},         {"kv", 2},          {"kv evn", 3},          {"kv*", 3},
      {"V padded", 8}, {"V padded(0)", 9}, {"V padded(3*t)", 11},  {"V padded(3) one", 12},
      {"i even x", 7}, {"+", 0},           {"i block(32*tp)", 10}, {"i block(32", 10}};
  for (const auto& [text, column] : cases) {
    CAPTURE(text);
    try {
      static_cast<void>(Cut::parse(text));
      FAIL_CHECK("no error");
    } catch (const LayoutError& e) {
      const std::string what = e.what();
      CHECK(what.substr(what.rfind('\n') + 1) == std::string(4 + column, ' ') + "^");
    }
  }
  CHECK(Cut::parse(" kv * g  even ").axes == std::vector<std::string>{"kv", "g"});
  CHECK(Cut::parse("V padded(64)") == Cut::parse("V padded(64) zero"));
}

}  // namespace cut_tests
