// SPDX-License-Identifier: MIT
// The report files: JUnit is well-formed XML, HTML needs nothing else, both appear whole or not.
#include <cctype>

#include <sim/report.hpp>
#include <tests/support/catch.hpp>
#include <tests/support/run_command.hpp>

namespace tpsim::test::command_files_tests {
namespace {

// What is wrong with the XML of `text`: elements that do not nest, stray markup, unknown entities.
// No comments, no CDATA: the reports have none.
std::string xml_fault(const std::string& text) {
  std::vector<std::string> open;
  std::size_t at = 0;
  const std::string declaration = R"(<?xml version="1.0" encoding="UTF-8"?>)";
  if (text.starts_with(declaration)) at = declaration.size();
  std::size_t roots = 0;
  const auto entity = [&](std::size_t i) {
    for (const char* known : {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"})
      if (text.compare(i, std::string(known).size(), known) == 0) return true;
    return false;
  };
  while (at < text.size()) {
    const char c = text[at];
    if (c == '&' && !entity(at)) return "a bare & at " + text.substr(at, 20);
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t')
      return "a control character";
    if (c != '<') {
      if (open.empty() && std::isspace(static_cast<unsigned char>(c)) == 0) return "text outside";
      ++at;
      continue;
    }
    std::size_t end = at;
    for (bool quoted = false; end < text.size() && (quoted || text[end] != '>'); ++end) {
      if (text[end] == '"') quoted = !quoted;
      if (end > at && text[end] == '<') return "a bare < at " + text.substr(end, 20);
      if (text[end] == '&' && !entity(end)) return "a bare & in a tag";
    }
    if (end == text.size()) return "a tag without end";
    const std::string tag = text.substr(at + 1, end - at - 1);
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag.starts_with('/')) {
      if (open.empty() || "/" + open.back() != tag) return "wrong end " + tag;
      open.pop_back();
    } else {
      if (open.empty() && ++roots > 1) return "two roots";
      if (!tag.ends_with('/')) open.push_back(name);
    }
    at = end + 1;
  }
  return open.empty() && roots == 1 ? "" : "not closed";
}

cli::LayerResult hostile_result() {
  cli::LayerResult result;
  result.spec.layer = "row";
  result.report.subject = "row,a:b";
  CheckResult check{.id = "order", .result = Outcome::fail};
  check.findings.push_back({"order", 0, "w<\"&'>", "50% <lost> & \"gone\"\r\nnext\x01 line, a:b",
                            "<cause>", "repair & go"});
  result.report.checks = {check, {.id = "heads", .message = "no <heads> & \"so\""}};
  result.report.tensors.push_back({"w<&>", 0, Shape(2, 2), {{0, Shape(1, 2), {}}}});
  return result;
}

}  // namespace

TEST_CASE("command files: the XML checker notices what is wrong", "[command]") {
  CHECK(xml_fault("<a b=\"c &amp; d\"><e/>text</a>\n") == "");
  for (const char* wrong : {"<a>", "<a></b>", "<a>&</a>", "<a b=\"&x;\"/>", "<a><</a>", "<a/><b/>",
                            "<a>\x01</a>", "text", ""})
    CHECK(xml_fault(wrong) != "");
}

TEST_CASE("command files: JUnit and HTML are whole and say what the terminal says", "[command]") {
  const TempDir folder;
  const auto junit = folder.path() / "report.xml", html = folder.path() / "page.html";
  const std::string files = " --junit " + junit.string() + " --html " + html.string();
  for (const char* line : {"--tp 2 --layer all --toy",
                           "--tp 4 --layer qkv --fault fused-cut-as-one --heads 8 --kv-heads 4 "
                           "--head-dim 2 --hidden 4"}) {
    CAPTURE(line);
    const Ran ran = run_line(line + files);
    const bool fault = has(line, "fault");
    CHECK(ran.status == (fault ? 1 : 0));
    const std::string xml = read_text(junit), page = read_text(html);
    CHECK(xml_fault(xml) == "");
    CHECK(count_of_text(xml, "<testsuite ") == (fault ? 1 : 9));
    CHECK(has(xml, fault ? "<failure message=" : "name=\"exact.exact\"></testcase>"));
    CHECK(count_of_text(xml, "<property name=\"backend\" value=\"eigen\"/>") == (fault ? 1 : 9));
    CHECK(count_of_text(xml, "<property name=\"comm\" value=\"virtual\"/>") == (fault ? 1 : 9));
    CHECK(count_of_text(page, "<p>backend eigen, comm virtual</p>") == (fault ? 1 : 9));
    CHECK(page.starts_with("<!doctype html>"));
    CHECK(page.ends_with("</body></html>\n"));
    CHECK_FALSE(has(page, "http"));
    CHECK_FALSE(has(page, "src="));
    CHECK_FALSE(has(page, "<script"));
    CHECK_FALSE(has(page, "<link"));
    CHECK(has(page, "rank 1"));
  }
  std::size_t left = 0;  // no temporary file stays
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path()))
    ++left;
  CHECK(left == 2);
}

TEST_CASE("command files: an old report survives when the new request is refused", "[command]") {
  const TempDir folder;
  const auto page = folder.write("page.html", "old");
  CHECK(run_line("--tp 3 --layer row --toy --html " + page.string()).status == 2);
  CHECK(read_text(page) == "old");
  CHECK(run_line("--tp 2 --layer row --toy --html " + page.string()).status == 0);
  CHECK(read_text(page).starts_with("<!doctype html>"));
}

TEST_CASE("command files: hostile text is escaped", "[command]") {
  const cli::LayerRequest request;
  const std::vector<cli::LayerResult> results{hostile_result()};
  const std::string xml = cli::junit_report(request, results);
  CHECK(xml_fault(xml) == "");
  CHECK(has(xml, "50% &lt;lost&gt; &amp; &quot;gone&quot;"));
  CHECK(has(xml, "skipped=\"1\""));
  const std::string page = cli::html_report(request, results);
  CHECK_FALSE(has(page, "<lost>"));
  CHECK_FALSE(has(page, "<cause>"));
  CHECK(has(page, "w&lt;&amp;&gt;"));
  const std::string note = cli::github_annotations(results);
  CHECK(note ==
        "::error title=row%2Ca%3Ab tp 1 order::50%25 <lost> & \"gone\"%0D%0Anext\x01 line, a:b\n");
  const std::string summary = cli::github_summary(results);
  CHECK(
      summary.ends_with("| row,a:b | 1 | **fail** | 0 | 1 | 1 | "
                        "order: 50% &#60;lost&#62; &#38; \"gone\"  next  line, a:b |\n"));
}

}  // namespace tpsim::test::command_files_tests
