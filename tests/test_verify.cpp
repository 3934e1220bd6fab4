// SPDX-License-Identifier: MIT
// verify(): right layers pass for the right reasons, and each check can fail.
#include <set>
#include <string>
#include <vector>

#include <tests/support/verify_fixture.hpp>

namespace verify_tests {
namespace {

using namespace tpsim;
using namespace tpsim::testing;

// A communicator on which one rank behaves differently in an all_reduce.
class OddRank final : public detail::PassOn {
 public:
  enum class Does { skips, takes_the_maximum, gathers };
  OddRank(Communicator& world, Does does) : PassOn(world), does_(does) {}

 protected:
  void run(const Call& call) override {
    if (rank() != 1 || call.op != CollectiveOp::all_reduce) return PassOn::run(call);
    if (does_ == Does::skips) return;
    Call other = call;
    if (does_ == Does::takes_the_maximum) other.reduction = Reduction::max;
    if (does_ == Does::gathers) other.op = CollectiveOp::all_gather, other.dim = 1;
    PassOn::run(other);
  }

 private:
  Does does_;
};

}  // namespace

TEST_CASE("verify: every layer passes every reading at every legal tp and compares something") {
  for (const std::string& layer : layer_names())
    for (const int tp : legal_tp(small(layer, 1), 16))
      for (const bool bias : {false, true}) {
        LayerSpec s = small(layer, tp);
        s.bias = bias;
        const Report report = verify(*make_subject(s));
        INFO(layer << " tp " << tp << " bias " << bias);
        CHECK(failed(report).empty());
        for (const char* id : {"cover", "order", "state", "exact", "rounding"}) {
          CHECK(check(report, id).result == Outcome::pass);
          CHECK(check(report, id).compared > 0);
        }
        for (const CheckResult& c : report.checks)
          CHECK((c.result == Outcome::skip) == (c.compared == 0));
      }
}

TEST_CASE("verify: every option of the linear family passes in every number type") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    VerifyOptions options;
    options.dtype = dtype;
    std::vector<LayerSpec> specs(6, small("row", 4));
    specs[0].input_is_parallel = false;
    specs[1].bias = specs[1].skip_bias_add = true;
    specs[1].reduce_results = false;
    specs[2] = small("column", 4);
    specs[2].gather_output = specs[2].bias = true;
    specs[3] = small("merged", 4);
    specs[3].gather_output = specs[3].bias = true;
    specs[4] = small("qkv", 8);  // more ranks than kv heads
    specs[4].qkv.v_head_dim = 3;
    specs[4].disk = "kv*(q:g*d + k:d + v:m)";
    specs[4].bias = specs[4].skip_bias_add = true;
    specs[5] = small("mlp", 4);
    specs[5].disk = "i*(gate + up)";
    for (const LayerSpec& s : specs) {
      const Report report = verify(*make_subject(s), options);
      INFO(s.layer << " " << name(dtype));
      for (const CheckResult& c : report.checks)
        for (const Finding& f : c.findings) UNSCOPED_INFO(f.message);
      CHECK(failed(report).empty());
    }
  }
}

TEST_CASE("verify: each fault is found and by the checks that its kind violates") {
  struct Case {
    const char *fault, *layer;
    int tp;
    std::set<std::string> least;
    const char* cause;
  };
  const std::vector<Case> cases{
      {"gate-up-exchanged",
       "mlp",
       1,
       {"order", "state", "exact", "rounding"},
       "the parts gate and up are exchanged"},
      {"gate-up-exchanged",
       "mlp",
       4,
       {"order", "state", "exact", "rounding"},
       "the parts gate and up are exchanged"},
      {"k-v-exchanged",
       "qkv",
       2,
       {"order", "heads", "state", "exact", "integer"},
       "the parts k and v are exchanged"},
      {"fused-cut-as-one",
       "qkv",
       2,
       {"order", "heads", "state", "exact", "integer"},
       "the fused tensor was cut as one block"},
      {"kv-head-modulo",
       "qkv",
       4,
       {"order", "heads", "state", "exact", "replicas", "integer"},
       "replicas were dealt out by rank % parts"},
      {"rank-zero",
       "column",
       4,
       {"cover", "order", "state", "exact"},
       "the rank was taken as 0: every rank holds the first part"},
      {"rank-zero",
       "row",
       4,
       {"cover", "order", "partners", "state", "exact"},
       "the rank was taken as 0: every rank holds the first part"},
      {"off-by-one-rows",
       "column",
       4,
       {"cover", "order", "state", "exact"},
       "the offset is off by 1"},
      {"never-written",
       "qkv",
       2,
       {"cover", "order", "state", "exact", "integer", "rounding"},
       "a part of the parameter was never loaded"},
      {"bias-on-every-rank",
       "row",
       2,
       {"state", "exact", "integer", "rounding"},
       "every rank adds the whole bias before the all_reduce"},
      {"missing-all-reduce",
       "row",
       2,
       {"state", "exact", "replicas", "integer", "rounding"},
       "no collective sums the partial products"},
      {"doubled-all-reduce",
       "mlp",
       2,
       {"state", "exact", "rounding"},
       "a value is summed that every rank has whole: its all_reduce is doubled, or it was never "
       "cut"},
      {"sub-group-all-reduce",
       "mlp",
       4,
       {"state", "exact", "replicas", "rounding"},
       "the sum runs over too small a group: 2 of 4 ranks"}};
  for (const Case& c : cases) {
    const Report report = verify(*make_faulty_subject(small(c.layer, c.tp), c.fault));
    const std::set<std::string> ids = failed(report);
    INFO(c.fault << " " << c.layer << " tp " << c.tp);
    for (const std::string& id : c.least) {
      INFO(id);
      CHECK(ids.count(id) == 1);
    }
    bool told = false;
    for (const CheckResult& r : report.checks)
      for (const Finding& f : r.findings) told = told || f.cause == c.cause;
    CHECK(told);
  }
}

TEST_CASE("verify: every fault on every layer that it applies to fails at some tp") {
  for (const Fault& fault : faults())
    for (const std::string& layer : fault.layers) {
      bool found = false;
      for (const int tp : legal_tp(small(layer, 1), 8)) {
        VerifyOptions cheap;
        // Only floats see a loss of precision.
        cheap.numeric = fault.name == "bf16-sum";
        const LayerSpec s = spec_for_fault(small(layer, tp), fault.name);
        found = found || !verify(*make_faulty_subject(s, fault.name), cheap).passed();
      }
      INFO(fault.name << " " << layer);
      CHECK(found);
    }
}

TEST_CASE("collectives: ranks that do not call the same operation are all listed") {
  for (const auto& [does, text] : {std::pair{OddRank::Does::skips, "rank 1: returned"},
                                   {OddRank::Does::takes_the_maximum, "rank 1: all_reduce(max)"},
                                   {OddRank::Does::gathers, "rank 1: all_gather"}}) {
    Variation variation;
    variation.between = [does = does](Communicator& c) {
      return std::make_unique<OddRank>(c, does);
    };
    const Report report = verify(LinearSubject<>(small("row", 4), variation));
    const CheckResult& c = check(report, "collectives");
    CHECK(c.result == Outcome::fail);
    REQUIRE(!c.findings.empty());
    INFO(c.findings[0].message);
    CHECK(c.findings[0].message.find(text) != std::string::npos);
    CHECK(c.findings[0].message.find("ranks 2-3: all_reduce(sum) [5, 24]") != std::string::npos);
    CHECK(c.findings[0].message.find("layers/linear.hpp:") != std::string::npos);
    CHECK(failed(report).count("exact") == 1);  // a run that did not finish does not pass elsewhere
    CHECK(failed(report).count("rounding") == 1);
  }
}

TEST_CASE("exact: seeds are added until the chance of a miss is below 2^-60") {
  const Report report = verify(*make_subject(small("mlp", 4)));
  const CheckResult& c = check(report, "exact");
  REQUIRE(c.seeds.has_value());
  REQUIRE(c.log2_miss.has_value());
  CHECK(*c.seeds == 2);  // one seed over a field of 61 bits never reaches it
  CHECK(*c.log2_miss < -60);
  CHECK(c.compared == 4 * 4 * 32 * *c.seeds);  // ranks, tokens, columns, seeds
  ExactOptions strict;
  strict.log2_target = -100;
  const auto subject = make_subject(small("mlp", 4));
  CHECK(*read_exactly(*subject, read_statically(*subject), strict).front().seeds == 3);
}

TEST_CASE("report: shards tell what the loader did and what is not as declared") {
  const Report right = verify(*make_subject(small("qkv", 4)));
  REQUIRE(right.tensors.size() == 1);
  const TensorReport& t = right.tensors[0];
  CHECK(t.full_shape == Shape(72, 32));
  REQUIRE(t.shards.size() == 4);
  REQUIRE(t.shards[3].pieces.size() == 3);
  const ShardPiece& k = t.shards[3].pieces[1];
  CHECK(k.begin == 12);
  CHECK(k.end == 18);
  CHECK(k.source == "k_proj.weight");
  CHECK(k.source_begin == 6);
  CHECK(k.source_end == 12);
  CHECK(k.as_declared);
  const Report wrong = verify(*make_faulty_subject(small("qkv", 4), "kv-head-modulo"));
  CHECK(!wrong.tensors[0].shards[1].pieces[1].as_declared);
  CHECK(wrong.tensors[0].shards[1].pieces[0].as_declared);
}

TEST_CASE("report: costs are those of the shapes") {
  const Report report = verify(*make_subject(small("row", 4)));
  REQUIRE(report.collectives.size() == 1);
  CHECK(report.collectives[0].op == "all_reduce");
  CHECK(report.collectives[0].shape == Shape(5, 24));
  CHECK(report.collectives[0].bytes == 5 * 24 * 4);
  CHECK(report.cost.weight_bytes == std::vector<Index>(4, 24 * 4 * 4));
  CHECK(report.cost.full_weight_bytes == 24 * 16 * 4);
  CHECK(report.cost.flop == std::vector<Index>(4, 2 * 5 * 4 * 24));
  CHECK(report.cost.wire_bytes ==
        std::vector<Index>(4, 2 * 5 * 24 * 4 * 3 / 4));  // ring: 2 (n-1)/n
  const Report qkv = verify(*make_subject(small("qkv", 8)));
  CHECK(qkv.cost.kv_bytes_per_token == std::vector<Index>(8, 2 * 6 * 4));
}

TEST_CASE("requests: an illegal tp names every rule and the legal tp") {
  try {
    (void)make_subject(small("qkv", 3));
    FAIL("tp 3 was accepted");
  } catch (const LayoutError& e) {
    CHECK(e.subject() == "tp 3 cannot split this layer");
    CHECK(e.violations().size() == 2);
    CHECK(e.hint() == "tp can be 1, 2, 4 or 8");
  }
}

}  // namespace verify_tests
