// SPDX-License-Identifier: MIT
// Reports for browsers and CI: HTML, JUnit XML.
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include <tpsim/verify/replay.hpp>
#include <tpsim/version.hpp>

#include "sim/report.hpp"
#include "sim/text.hpp"

namespace tpsim::cli {
namespace {

std::string findings_text(const CheckResult& c) {
  std::string out;
  for (const Finding& f : c.findings) {
    out += f.message;
    if (!f.cause.empty()) out += "\n  cause: " + f.cause;
    if (!f.repair.empty()) out += "\n  repair: " + f.repair;
    out += "\n";
  }
  return out;
}

}  // namespace

std::string html_report(const LayerRequest& request, const std::vector<LayerResult>& results) {
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>tpsim "
      "{0}</title>\n<style>"
      "body{{font:14px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em}}"
      "table{{border-collapse:collapse;margin:1em 0}}td,th{{border:1px solid #999;padding:.25em "
      ".6em;text-align:left;vertical-align:top}}"
      ".pass{{color:#176f2c}}.fail{{color:#b00020;font-weight:bold}}.skip{{color:#775500}}.wrong{{"
      "background:#ffe0e0}}</style></head><body>\n<h1>tpsim {0}</h1>\n",
      TPSIM_VERSION);
  for (const LayerResult& result : results) {
    const Report& report = result.report;
    out += fmt::format(
        "<h2>layer {}, tp {}{}</h2>\n<p>backend {}, comm {}</p>\n<p><code>{}</code></p>\n",
        escaped(report.subject), report.tp,
        request.fault.empty() ? "" : ", fault " + escaped(request.fault), request.backend,
        request.comm,
        escaped(shell_line(result.command.empty()
                               ? replay_command(result.spec, request.fault, request.seed)
                               : result.command)));
    for (const std::string& note : result.notes) out += "<p>note: " + escaped(note) + "</p>\n";
    for (const TensorReport& t : report.tensors) {
      out += fmt::format("<h3>{} {}</h3>\n<table><tr>", escaped(t.name), t.full_shape.str());
      for (const Shard& s : t.shards) out += fmt::format("<th>rank {}</th>", s.rank);
      out += "</tr>\n<tr>";
      for (const Shard& s : t.shards) {
        out += "<td>";
        for (const ShardPiece& p : s.pieces)
          out += fmt::format("<div{}>{} [{}, {})</div>", p.as_declared ? "" : " class=\"wrong\"",
                             escaped(p.label.empty() ? p.source : p.label), p.source_begin,
                             p.source_end);
        out += "</td>";
      }
      out += "</tr></table>\n";
    }
    out +=
        "<table><tr><th>check</th><th>reading</th><th>result</th><th>compared</th><th>what</th></"
        "tr>\n";
    for (const CheckResult& c : report.checks)
      out += fmt::format(
          "<tr><td>{0}</td><td>{1}</td><td "
          "class=\"{2}\">{2}</td><td>{3}</td><td><pre>{4}</pre></td></tr>\n",
          c.id, name(c.reading), name(c.result), c.compared,
          escaped(c.findings.empty() ? c.message : findings_text(c)));
    out += "</table>\n";
    if (!result.smallest.empty())
      out += fmt::format("<p>smallest failing case: <code>{}</code></p>\n",
                         escaped(shell_line(result.smallest)));
  }
  return out + "</body></html>\n";
}

std::string junit_report(const LayerRequest& request, const std::vector<LayerResult>& results) {
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n";
  for (const LayerResult& result : results) {
    const Report& report = result.report;
    std::size_t failures = 0, skipped = 0;
    for (const CheckResult& c : report.checks)
      failures += c.result == Outcome::fail ? 1 : 0, skipped += c.result == Outcome::skip ? 1 : 0;
    out += fmt::format(
        "  <testsuite name=\"{} tp {}\" tests=\"{}\" failures=\"{}\" skipped=\"{}\" "
        "time=\"{:.3f}\">\n",
        escaped(report.subject), report.tp, report.checks.size(), failures, skipped,
        result.elapsed_s);
    out += fmt::format(
        "    <properties><property name=\"backend\" value=\"{}\"/><property name=\"comm\" "
        "value=\"{}\"/></properties>\n",
        request.backend, request.comm);
    for (const CheckResult& c : report.checks) {
      out += fmt::format("    <testcase classname=\"{}\" name=\"{}.{}\">", escaped(report.subject),
                         c.id, name(c.reading));
      if (c.result == Outcome::fail)
        out += fmt::format("<failure message=\"{}\">{}</failure>",
                           escaped(c.findings.empty() ? c.message : c.findings.front().message),
                           escaped(findings_text(c)));
      if (c.result == Outcome::skip)
        out += fmt::format("<skipped message=\"{}\"/>", escaped(c.message));
      out += "</testcase>\n";
    }
    out += "  </testsuite>\n";
  }
  return out + "</testsuites>\n";
}

namespace {

[[noreturn]] void cannot_write(const std::string& path, const std::string& why) {
  throw LayoutError("cannot write " + path + ": " + why, {},
                    "name a file in a folder that exists and is writable");
}

// A name in the same folder, so that the rename stays in one file system.
std::string temporary_name(const std::string& path) {
  return fmt::format("{}.tmp{}", path, getpid());
}

void write_all(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file) return;
  const std::string why = errno == 0 ? "the disk refused it" : std::strerror(errno);
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  cannot_write(path.substr(0, path.rfind(".tmp")), why);
}

}  // namespace

void require_writable(const std::string& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  // A rename would put a file in the place of a folder, a device or a pipe.
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    cannot_write(
        path, std::filesystem::is_directory(status) ? "it is a folder" : "it is no ordinary file");
  const std::string temporary = temporary_name(path);
  write_all(temporary, "");
  std::filesystem::remove(temporary, ignored);
}

void write_file(const std::string& path, const std::string& text) {
  const std::string temporary = temporary_name(path);
  write_all(temporary, text);
  std::error_code error;
  std::filesystem::rename(temporary, path, error);
  if (!error) return;
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  cannot_write(path, error.message());
}

}  // namespace tpsim::cli
