// SPDX-License-Identifier: MIT
// Right layers of any shape: no reading says a word. Found by `ctest -R quiet`.
#include <map>
#include <set>
#include <string>
#include <vector>

#include <tests/support/verify_fixture.hpp>

#include <properties/generators.hpp>

namespace quiet_tests {

using namespace tpsim;
using namespace tpsim::testing;
namespace laws = tpsim::properties;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int fewer = 10;  // a sanitizer takes ten times as long
#else
constexpr int fewer = 1;
#endif

/// How many of the cases are of which kind: hard ones have to turn up.
class Spread {
 public:
  void add(const laws::Case& c) {
    const LayerSpec& s = c.spec;
    ++cases_;
    ++kinds_["layer " + s.layer];
    ++kinds_["dtype " + std::string(name(c.dtype))];
    kinds_["bias"] += s.bias ? 1 : 0;
    kinds_["fused"] += s.disk.empty() ? 0 : 1;
    kinds_["tp 1"] += s.tp == 1 ? 1 : 0;
    kinds_["tp no power of two"] += (s.tp & (s.tp - 1)) != 0 ? 1 : 0;
    kinds_["more ranks than kv heads"] += s.layer == "qkv" && s.tp > s.qkv.kv_heads ? 1 : 0;
    bool unequal = false;
    for (const MergedPart& part : s.parts) unequal = unequal || part.rows != s.parts[0].rows;
    kinds_["unequal parts"] += unequal ? 1 : 0;
    disks_.insert(s.disk.substr(0, 3));
  }
  void require_hard_cases() const {
    for (const std::string& layer : layer_names()) CHECK(percent("layer " + layer) >= 5);
    for (const char* kind : {"dtype f32", "dtype bf16", "dtype f16"}) CHECK(percent(kind) >= 30);
    CHECK(percent("bias") >= 40);
    CHECK(percent("fused") >= 30);
    CHECK(percent("tp 1") >= 5);
    CHECK(percent("tp no power of two") >= 30);
    CHECK(percent("more ranks than kv heads") >= 10);
    CHECK(percent("unequal parts") >= 15);
    CHECK(disks_.size() >= 5);
  }

 private:
  [[nodiscard]] int percent(const std::string& kind) const {
    const auto it = kinds_.find(kind);
    return it == kinds_.end() ? 0 : 100 * it->second / cases_;
  }
  int cases_ = 0;
  std::map<std::string, int> kinds_;
  std::set<std::string> disks_;
};

void check_no_finding(const CheckResult& c, const laws::Case& drawn) {
  if (c.findings.empty()) return;
  INFO(laws::command_line(drawn));
  FAIL_CHECK(c.id << ": " << c.findings.front().message);
}

}  // namespace

TEST_CASE("quiet: ten thousand right layers pass the static and the exact reading") {
  const rc::Gen<laws::Case> legal = laws::legal_cases();
  rc::Random random(20250101);
  Spread spread;
  std::map<std::string, Index> compared;
  for (int i = 0; i < 10000 / fewer; ++i) {
    const laws::Case drawn = legal(random.split(), 100).value();
    spread.add(drawn);
    VerifyOptions options{.numeric = false, .seed = drawn.seed};
    options.schedule = Schedule::shuffled(drawn.seed);
    const Report report = verify(*make_subject(drawn.spec), options);
    for (const CheckResult& c : report.checks) {
      check_no_finding(c, drawn);
      compared[c.id] += c.compared > 0 ? 1 : 0;
    }
  }
  spread.require_hard_cases();
  for (const char* id : {"cover", "order", "state", "exact"}) CHECK(compared[id] == 10000 / fewer);
  for (const char* id : {"heads", "partners", "collectives", "replicas"})
    CHECK(compared[id] >= 2000 / fewer);
}

TEST_CASE("quiet: a hundred thousand right layers stay within their rounding bounds") {
  const rc::Gen<laws::Case> legal = laws::legal_cases();
  rc::Random random(20250102);
  Spread spread;
  double worst = 0;
  for (int i = 0; i < 100000 / fewer; ++i) {
    const laws::Case drawn = legal(random.split(), 100).value();
    spread.add(drawn);
    const std::vector<CheckResult> checks =
        read_numerically(*make_subject(drawn.spec), {drawn.dtype, drawn.seed, {}});
    for (const CheckResult& c : checks) {
      check_no_finding(c, drawn);
      if (c.id != "rounding") continue;
      if (c.compared == 0) FAIL_CHECK("nothing was compared: " << laws::command_line(drawn));
      worst = std::max(worst, c.largest_ratio.value_or(2));
    }
  }
  spread.require_hard_cases();
  CHECK(worst > 0.3);  // the bounds are no wider than they need to be
  CHECK(worst <= 1);
}

}  // namespace quiet_tests
