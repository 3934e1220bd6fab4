// SPDX-License-Identifier: MIT
// verify(): faults that are easy to overlook: ignored options, redundant sums, overflow, sparse
// data.
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <tests/support/verify_fixture.hpp>

#include <tpsim/layout/memory_values.hpp>

namespace verify_overlooked_tests {
namespace {

using namespace tpsim;
using namespace tpsim::testing;

// Adds its bias although the caller asked to do that itself.
template <class B>
struct EagerColumn : ColumnParallelLinear<B> {
  using Base = ColumnParallelLinear<B>;
  using Base::Base;
  typename Base::Tensor forward(const typename Base::Tensor& x) {
    typename Base::Tensor y = this->backend_->linear(x, this->weight);
    return this->bias ? this->backend_->add_bias(y, *this->bias) : std::move(y);
  }
  const typename Base::Param* skipped_bias() const { return nullptr; }
};
struct EagerLayers : RealLayers {
  template <class B>
  using Column = EagerColumn<B>;
};

// Sums twice, the second time the maximum of values that are equal already.
class Redundant final : public detail::PassOn {
 public:
  using PassOn::PassOn;

 protected:
  void run(const Call& call) override {
    PassOn::run(call);
    if (call.op != CollectiveOp::all_reduce) return;
    Call again = call;
    again.in = call.out;
    again.reduction = Reduction::max;
    PassOn::run(again);
  }
};

}  // namespace

TEST_CASE("state: a layer that ignores skip_bias_add is found") {
  LayerSpec s = small("column", 2);
  s.bias = s.skip_bias_add = true;
  const Report report = verify(LinearSubject<EagerLayers>(s));
  const std::set<std::string> ids = failed(report);
  CHECK(check(report, "state").findings.front().cause ==
        "bias counts 2 times");  // nothing is summed
  for (const char* id : {"state", "exact", "integer", "rounding"}) CHECK(ids.count(id) == 1);
  s.skip_bias_add = false;
  CHECK(failed(verify(LinearSubject<EagerLayers>(s))).empty());
}

TEST_CASE("collectives: a redundant one is found although it changes no value") {
  Variation variation;
  variation.between = [](Communicator& c) { return std::make_unique<Redundant>(c); };
  const Report report = verify(LinearSubject<>(small("row", 4), variation));
  CHECK(failed(report) == std::set<std::string>{"collectives"});
  CHECK(check(report, "collectives").findings[0].cause == "a collective is redundant");
}

TEST_CASE("rounding: a sum that leaves the range of the type is found on one rank or on all") {
  const auto huge = [](float first, float second) {
    std::vector<float> numbers;
    for (int r = 0; r < 4; ++r) numbers.insert(numbers.end(), {first, first, second, second});
    return std::make_shared<MemoryValues>(Shape(4, 4), std::move(numbers));
  };
  LayerSpec s = small("row", 2);
  s.in = s.out = 4;
  VerifyOptions f16;
  f16.dtype = DType::f16;
  for (const auto& [first, second] : {std::pair{60000.F, -60000.F}, {60000.F, 60000.F}}) {
    s.values["weight"] = huge(first, second);
    s.tokens = 64;  // some of them have the signs that overflow
    const Report report = verify(*make_subject(s), f16);
    const CheckResult& rounding = check(report, "rounding");
    CHECK(rounding.result == Outcome::fail);
    REQUIRE(!rounding.findings.empty());
    CHECK(rounding.findings[0].message.find("not finite where full() is") != std::string::npos);
    REQUIRE(rounding.largest_ratio.has_value());
    CHECK(std::isfinite(*rounding.largest_ratio));
    CHECK(check(report, "exact").result == Outcome::pass);
  }
}

TEST_CASE("integer: sparse bf16 data touches every column") {
  LayerSpec s = small("column", 2);
  s.in = 1000;  // more products than bf16 can count
  s.tokens = 1;
  VerifyOptions bf16;
  bf16.dtype = DType::bf16;
  const Report report = verify(*make_subject(s), bf16);
  const Index stride = eigen::integer_range(DType::bf16, 1000).x_stride;
  REQUIRE(stride > 1);
  CHECK(check(report, "integer").compared == stride * s.out);
  CHECK(check(report, "integer").result == Outcome::pass);
}

namespace {

// Tells the layer that it is alone.
class Alone final : public detail::PassOn {
 public:
  using PassOn::PassOn;
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
};

}  // namespace

TEST_CASE("divide: a layer that takes tp as 1 is found by the shapes it holds") {
  Variation variation;
  variation.between = [](Communicator& c) { return std::make_unique<Alone>(c); };
  for (const char* layer : {"column", "row", "merged", "qkv"}) {
    const Report report = verify(LinearSubject<>(small(layer, 4), variation));
    INFO(layer);
    CHECK(check(report, "divide").result == Outcome::fail);
    CHECK(check(report, "divide").compared == 4);
    CHECK(!report.passed());
  }
}

namespace {

// Ranks that count from the other end, everywhere.
class CountedBackwards final : public detail::PassOn {
 public:
  using PassOn::PassOn;
  [[nodiscard]] int rank() const override { return size() - 1 - PassOn::rank(); }
};

}  // namespace

TEST_CASE("order: one other order on all partners is a remark, on one of them a finding") {
  Variation backwards;
  backwards.between = [](Communicator& c) { return std::make_unique<CountedBackwards>(c); };
  const Report mlp = verify(LinearSubject<>(small("mlp", 4), backwards));
  for (const CheckResult& c : mlp.checks)
    for (const Finding& f : c.findings) UNSCOPED_INFO(f.message);
  CHECK(failed(mlp).empty());
  CHECK(check(mlp, "order")
            .message.find("an equivalent permutation (rank 0 gate: holds "
                          "gate_proj.weight rows [12, 16), wanted gate_proj.weight "
                          "rows [0, 4))") != std::string::npos);
  LayerSpec row = small("row", 4);
  row.input_is_parallel = false;  // the layer's own cut of its input is the partner
  CHECK(failed(verify(LinearSubject<>(row, backwards))).empty());
  // Elsewhere the order is the caller's, or the result's.
  for (const char* layer : {"row", "column", "merged", "qkv"}) {
    INFO(layer);
    const std::set<std::string> ids = failed(verify(LinearSubject<>(small(layer, 4), backwards)));
    CHECK(ids.count("order") == 1);
    CHECK(ids.count("state") == 1);
    CHECK(ids.count("exact") == 1);
  }
}

}  // namespace verify_overlooked_tests
