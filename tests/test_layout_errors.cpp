// SPDX-License-Identifier: MIT
// Layout expressions that cannot be read, bound or matched with tensors.
#include <functional>
#include <memory>
#include <tests/support/catch.hpp>
#include <tpsim/layout/expression.hpp>
#include <tpsim/layout/row_identity.hpp>

namespace layout_errors_tests {

using namespace tpsim;

namespace {

std::string message(const std::function<void()>& f) {
  try {
    f();
  } catch (const LayoutError& e) {
    return e.what();
  }
  return "no error";
}

// The columns of the carets in the last line of carets of a message.
std::vector<std::size_t> carets(const std::string& text) {
  std::vector<std::size_t> out;
  const std::size_t line = text.rfind("\n    ", text.find('^')) + 5;
  for (std::size_t i = line; i < text.size() && text[i] != '\n'; ++i)
    if (text[i] == '^') out.push_back(i - line);
  return out;
}

}  // namespace

TEST_CASE("layout: an error points at the column and says what was expected") {
  struct Case {
    const char* text;
    std::size_t column;
    const char* expected;
  };
  const std::string deep = std::string(17, '(') + "d" + std::string(17, ')');
  const std::vector<Case> cases{
      {"", 0, "expected an axis name, a number or '('"},
      {"q:kv*g*d + ", 11, "expected an axis name, a number or '('"},
      {"q:kv*", 5, "expected an axis name or a number"},
      {"kv**d", 3, "expected an axis name, a number or '('"},
      {"kv d", 3, "expected '*', '+' or the end"},
      {"kv*d)", 4, "expected '*', '+' or the end"},
      {"kv*(q:d + k:d", 13, "expected '*', '+' or ')'"},
      {"kv*d\xc3\xa9", 4, "expected '*', '+' or the end"},
      {"q:k:d", 2, "'k' is a label inside the label 'q'"},
      {"q:kv*k:d", 5, "'k' is a label inside the label 'q'"},
      {"kv*k:d", 3, "the label 'k' must stand first"},
      {"q:(k:d)", 2, "the label 'q' cannot hold parentheses"},
      {"q:d + kv*(q:d)", 10, "the label 'q' is used twice"},
      {"q:d + kv*d", 6, "every part of a sum needs one"},
      {"(q:d)*(k:d)", 6, "a product has parentheses once"},
      {"q:0*d", 2, "a number from 1"},
      {"-1*d", 0, "expected an axis name, a number or '('"},
      {"99999999999999999999*d", 0, "a number up to 281474976710656"},
      {deep.c_str(), 16, "nested deeper than 16"},
  };
  for (const Case& c : cases) {
    const std::string text = message([&] { static_cast<void>(LayoutExpr::parse(c.text)); });
    CAPTURE(c.text, text);
    CHECK(text.find(c.expected) != std::string::npos);
    CHECK(carets(text) == std::vector<std::size_t>{c.column});
  }
  CHECK(message([] {
          static_cast<void>(LayoutExpr::parse(std::string(5000, 'a')));
        }).find("too long") != std::string::npos);
}

TEST_CASE("layout: binding names every broken rule at once") {
  const Axes axes{{"kv", 2}, {"d", 4}, {"none", 0}, {"less", -3}, {"big", Index{1} << 40}};
  struct Case {
    const char* text;
    std::vector<std::size_t> columns;
    std::vector<Violation> broken;
  };
  const std::string known = "; the axes are big, d, kv, less, none";
  const std::vector<Case> cases{
      {"H", {0}, {{"names", "no axis 'H'" + known}}},
      {"q:kv*dd + k:kv*x + v:x",
       {5, 15, 21},
       {{"names", "no axis 'dd'" + known}, {"names", "no axis 'x'" + known}}},
      {"q:none*d + k:less",
       {2, 13},
       {{"cover", "axis 'none' has extent 0; it must be at least 1"},
        {"cover", "axis 'less' has extent -3; it must be at least 1"}}},
      {"big*big", {0}, {{"cover", "over 2^48 rows"}}},
      {"big*(q:big + k:big)", {0}, {{"cover", "over 2^48 rows"}}},
      {"d*(gate + kv)",
       {10},
       {{"names", "a part has no label, but others do (a name with an extent is an axis)"}}},
      {"d*(gate + gate)", {10}, {{"names", "the label 'gate' is used twice"}}},
      {"big*(q:2 + k:2)", {}, {{"cover", "over 1048576 runs of rows"}}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    try {
      static_cast<void>(bind_layout(LayoutExpr::parse(c.text), axes));
      FAIL_CHECK("no error");
    } catch (const LayoutError& e) {
      CHECK(e.violations() == c.broken);
      CHECK((c.columns.empty() || carets(e.what()) == c.columns));
    }
  }
  CHECK_THROWS_AS(axes_of(LayoutExpr::parse("q:d"), axes, "k"), LayoutError);
  CHECK(axes_of(LayoutExpr::parse("kv*(q:2*d + k:d)"), axes, "q") ==
        std::vector<AxisExtent>{{"kv", 2}, {"2", 2}, {"d", 4}});
}

TEST_CASE("layout: row identity refuses tensors that do not fit") {
  const RowLayout layout = bind_layout(LayoutExpr::parse("q:4 + k:2"), {});
  const auto identity = [](const RowLayout& l, const std::function<Logical(std::string_view)>& f) {
    return message([&] { static_cast<void>(row_identity(l, f)); });
  };
  const auto four_rows = [](std::string_view label) -> Logical {
    return std::make_shared<LogicalTensor>(std::string(label) + "_proj", Shape(4, 1));
  };
  CHECK(identity(layout, four_rows).find("k_proj has 4 rows, the label 'k' 2") !=
        std::string::npos);
  CHECK(identity(layout, [](std::string_view) -> Logical {
          return nullptr;
        }).find("no logical tensor for the label 'q'") != std::string::npos);
  const auto range = [](Index begin) { return Runs::range(begin, begin + 4); };
  CHECK(identity(RowLayout({{"q", range(0)}, {"k", range(3)}}), four_rows)
            .find("row 3 has two meanings") != std::string::npos);
  CHECK(identity(RowLayout({{"q", range(0)}, {"k", range(5)}}), four_rows)
            .find("row 4 has no meaning") != std::string::npos);
}

TEST_CASE("layout: row identity keeps an order that no expression has") {
  Runs halves_exchanged = Runs::range(2, 4);
  halves_exchanged.append(Runs::range(0, 2));
  const auto q = std::make_shared<const LogicalTensor>("q_proj", Shape(4, 1));
  const auto rows = row_identity(RowLayout({{"q", halves_exchanged}}),
                                 [&](std::string_view) -> Logical { return q; });
  REQUIRE(rows.size() == 2);
  CHECK((rows[0].begin == 0 && rows[0].src_begin == 2 && rows[0].length == 2));
  CHECK((rows[1].begin == 2 && rows[1].src_begin == 0 && rows[1].length == 2));
}

}  // namespace layout_errors_tests
