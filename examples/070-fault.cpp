// SPDX-License-Identifier: MIT
// verify() on code with a fault in it. The loader here gives rank r the kv head r % kv_heads, where
// the query heads of rank r read r / (tp / kv_heads). Every rank has the right number of rows and
// every kv head is on two ranks: counting finds nothing.
//
// The findings know nothing of the fault's name. `tpsim list faults` lists more of them.
#include <tpsim/verify/faults.hpp>
#include <tpsim/verify/verify.hpp>

#include <fmt/format.h>

using namespace tpsim;

int main() {
  LayerSpec spec;
  spec.layer = "qkv";
  spec.tp = 4;
  spec.tokens = 2;
  spec.qkv = {.hidden = 6, .head_dim = 2, .heads = 4, .kv_heads = 2};

  fmt::print("the real layer {}\n",
             verify(*make_subject(spec)).passed() ? "is verified" : "has findings");

  const Report report = verify(*make_faulty_subject(spec, "kv-head-modulo"));
  for (const CheckResult& check : report.checks) {
    if (check.result != Outcome::fail) {
      fmt::print("{:<8}{:<12}{}\n", name(check.reading), check.id, name(check.result));
      continue;
    }
    const Finding& first = check.findings.front();
    fmt::print("{:<8}{:<12}{} findings; {}\n", name(check.reading), check.id, check.findings.size(),
               first.message);
  }
  const CheckResult* heads = report.find("heads");
  fmt::print("cause: {}\nrepair: {}\n", heads->findings.front().cause,
             heads->findings.front().repair);
}
