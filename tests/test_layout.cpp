// SPDX-License-Identifier: MIT
// Layout expressions: row orders of real checkpoints, laws on random ones, errors.
#include <rapidcheck.h>

#include <functional>
#include <tests/support/catch.hpp>
#include <tests/support/random_layout.hpp>

namespace layout_tests {

using namespace tpsim;
using test::list;

namespace {

struct Sizes {
  Index nkv, g, hd;
  [[nodiscard]] Index nh() const { return nkv * g; }
};
// GQA, MQA (falcon-7b), MHA, and a query group that is no power of two.
const std::vector<Sizes> sizes{{2, 3, 4}, {1, 71, 2}, {3, 1, 5}, {8, 4, 16}, {5, 7, 3}, {1, 1, 1}};

// Disk row of element `x` of head `head`.
using Formula = std::function<Index(const Sizes&, Index head, Index x)>;
struct Order {
  const char* expression;
  const char* label;
  bool query;  // heads: nh, else nkv
  Formula row;
};

const std::vector<Order> orders{
    // separate q_proj, k_proj
    {"kv*g*d", "", true, [](auto& s, Index h, Index x) { return h * s.hd + x; }},
    {"kv*d", "", false, [](auto& s, Index j, Index x) { return j * s.hd + x; }},
    {"q:kv*g*d", "q", true, [](auto& s, Index h, Index x) { return h * s.hd + x; }},
    // phi3, chatglm, baichuan, qwen, mpt, gpt2 after transpose, gpt_bigcode with multi_query
    {"q:kv*g*d + k:kv*d + v:kv*d", "q", true,
     [](auto& s, Index h, Index x) { return h * s.hd + x; }},
    {"q:kv*g*d + k:kv*d + v:kv*d", "k", false,
     [](auto& s, Index j, Index x) { return s.nh() * s.hd + j * s.hd + x; }},
    {"q:kv*g*d + k:kv*d + v:kv*d", "v", false,
     [](auto& s, Index j, Index x) { return (s.nh() + s.nkv) * s.hd + j * s.hd + x; }},
    // falcon, internlm2, Megatron linear_qkv: group j holds g queries, one key, one value
    {"kv*(q:g*d + k:d + v:d)", "q", true,
     [](auto& s, Index h, Index x) { return h / s.g * (s.g + 2) * s.hd + h % s.g * s.hd + x; }},
    {"kv*(q:g*d + k:d + v:d)", "k", false,
     [](auto& s, Index j, Index x) { return j * (s.g + 2) * s.hd + s.g * s.hd + x; }},
    {"kv*(q:g*d + k:d + v:d)", "v", false,
     [](auto& s, Index j, Index x) { return j * (s.g + 2) * s.hd + (s.g + 1) * s.hd + x; }},
    {"kv*(q:g + k + v)*d", "v", false,
     [](auto& s, Index j, Index x) { return j * (s.g + 2) * s.hd + (s.g + 1) * s.hd + x; }},
    // gpt_neox, bloom, falcon-rw, gpt_bigcode without multi_query
    {"h*(q:d + k:d + v:d)", "q", true, [](auto& s, Index h, Index x) { return h * 3 * s.hd + x; }},
    {"h*(q:d + k:d + v:d)", "k", true,
     [](auto& s, Index h, Index x) { return h * 3 * s.hd + s.hd + x; }},
    {"h*(q:d + k:d + v:d)", "v", true,
     [](auto& s, Index h, Index x) { return h * 3 * s.hd + 2 * s.hd + x; }},
};

std::vector<Index> rows(const char* expression, const Axes& axes, const char* label) {
  return list(bind_layout(LayoutExpr::parse(expression), axes).rows_of(label));
}

std::vector<Index> made(Index n, const std::function<Index(Index)>& f) {
  std::vector<Index> out;
  for (Index i = 0; i < n; ++i) out.push_back(f(i));
  return out;
}

}  // namespace

TEST_CASE("layout: attention row orders follow their formulas") {
  for (const Order& order : orders) {
    for (const Sizes& s : sizes) {
      CAPTURE(order.expression, order.label, s.nkv, s.g, s.hd);
      const Axes axes{{"kv", s.nkv}, {"g", s.g}, {"d", s.hd}, {"h", s.nh()}};
      const Index heads = order.query ? s.nh() : s.nkv;
      CHECK(rows(order.expression, axes, order.label) ==
            made(heads * s.hd, [&](Index i) { return order.row(s, i / s.hd, i % s.hd); }));
    }
  }
}

TEST_CASE("layout: other fused orders follow their formulas") {
  for (const Index n : {1, 3, 32}) {
    const Axes mlp{{"i", n}};
    CHECK(rows("gate:i + up:i", mlp, "gate") == made(n, [](Index i) { return i; }));
    CHECK(rows("gate:i + up:i", mlp, "up") == made(n, [&](Index i) { return n + i; }));
    CHECK(rows("i*(gate + up)", mlp, "gate") == made(n, [](Index i) { return 2 * i; }));
    CHECK(rows("i*(gate + up)", mlp, "up") == made(n, [](Index i) { return 2 * i + 1; }));
    const Index m = n + 2, h = 4;
    const Axes mla{{"h", h}, {"n", n}, {"v", m}};  // MLA kv_b_proj
    CHECK(rows("h*(nope:n + val:v)", mla, "nope") ==
          made(h * n, [&](Index i) { return i / n * (n + m) + i % n; }));
    CHECK(rows("h*(nope:n + val:v)", mla, "val") ==
          made(h * m, [&](Index i) { return i / m * (n + m) + n + i % m; }));
    const Axes ssm{{"h", h}, {"p", m}, {"s", 2}, {"n", n}};  // mamba2 in_proj
    const char* in_proj = "z:h*p + x:h*p + B:s*n + C:s*n + dt:h";
    CHECK(rows(in_proj, ssm, "z") == made(h * m, [](Index i) { return i; }));
    CHECK(rows(in_proj, ssm, "x") == made(h * m, [&](Index i) { return h * m + i; }));
    CHECK(rows(in_proj, ssm, "B") == made(2 * n, [&](Index i) { return 2 * h * m + i; }));
    CHECK(rows(in_proj, ssm, "C") == made(2 * n, [&](Index i) { return 2 * h * m + 2 * n + i; }));
    CHECK(rows(in_proj, ssm, "dt") == made(h, [&](Index i) { return 2 * h * m + 4 * n + i; }));
  }
  CHECK(rows("q + k + v", {}, "v") == std::vector<Index>{2});  // one scale per part
  CHECK(rows("q:2*d + k:d", {{"d", 3}}, "k") == std::vector<Index>{6, 7, 8});
}

TEST_CASE("layout: labels own the rows that the expression spells out") {
  REQUIRE(rc::check([] {
    const test::RandomLayout drawn = test::random_layout();
    const LayoutExpr expr = LayoutExpr::parse(drawn.text);
    const RowLayout layout = bind_layout(expr, drawn.axes);
    RC_ASSERT(layout.rows() == static_cast<Index>(drawn.owners.size()));
    std::vector<std::string> owners(drawn.owners.size());
    const std::vector<LabelAxes> labels = label_axes(expr, drawn.axes);
    RC_ASSERT(labels.size() == layout.parts().size());
    for (std::size_t l = 0; l < labels.size(); ++l) {
      const RowLayout::Part& part = layout.parts()[l];
      Index product = 1;
      for (const AxisExtent& a : labels[l].axes) product *= a.extent;
      RC_ASSERT((labels[l].label == part.label && product == part.disk_rows.size()));
      const std::vector<Index> disk = list(part.disk_rows);
      RC_ASSERT(std::is_sorted(disk.begin(), disk.end()));
      for (const Index row : disk) {
        RC_ASSERT(owners.at(static_cast<std::size_t>(row)).empty());  // partition
        owners[static_cast<std::size_t>(row)] = part.label;
      }
    }
    RC_ASSERT(owners == drawn.owners);
    RC_ASSERT(LayoutExpr::parse(expr.str()).str() == expr.str());
  }));
}

TEST_CASE("layout: identity of the rows of a label is its canonical order") {
  REQUIRE(rc::check([] {
    const test::RandomLayout drawn = test::random_layout();
    const RowLayout layout = bind_layout(LayoutExpr::parse(drawn.text), drawn.axes);
    const auto stored = test::stored(layout, 3);
    Index next = 0;
    for (const RowIdentity& id : stored->identity) {
      RC_ASSERT((id.begin == next && id.length > 0));
      next += id.length;
      for (Index i = 0; i < id.length; ++i)
        RC_ASSERT(drawn.meaning(id.begin + i) ==
                  std::make_pair(id.tensor->name, id.src_begin + i * id.src_stride));
    }
    RC_ASSERT(next == layout.rows());
    for (const RowLayout::Part& part : layout.parts()) {
      const FullTensor view = FullTensor(stored).rows(part.disk_rows);
      const std::vector<Piece> pieces = view.pieces(0, part.disk_rows.size(), 0, 3);
      RC_ASSERT(pieces.size() == 1U);
      RC_ASSERT((pieces[0].tensor->name == part.label && pieces[0].src_row == 0 &&
                 pieces[0].src_stride == 1 && pieces[0].rows == part.disk_rows.size()));
    }
  }));
}

TEST_CASE("layout: wide tensors stay compact") {
  const RowLayout mlp = bind_layout(LayoutExpr::parse("i*(gate + up)"), {{"i", 53248}});
  CHECK(mlp.rows() == 2 * 53248);
  CHECK(mlp.rows_of("gate").runs().size() == 1);
  CHECK(mlp.rows_of("up").str() == "1:106496:2");
  const Axes llama_405b{{"kv", 8}, {"g", 16}, {"d", 128}};
  const RowLayout qkv = bind_layout(LayoutExpr::parse("kv*(q:g*d + k:d + v:d)"), llama_405b);
  CHECK(qkv.rows_of("q").runs().size() == 8);
  CHECK(qkv.rows_of("k").runs().size() == 8);
  CHECK(bind_layout(LayoutExpr::parse("V*d"), {{"V", 1 << 30}, {"d", 1 << 17}}).parts().size() ==
        1);
}

}  // namespace layout_tests
