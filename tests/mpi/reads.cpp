// SPDX-License-Identifier: MIT
// Checks over MPI: a rank's process reads its own shard's numbers and no others; rank 0 reads the
// whole tensors too, which full() needs.
#include <atomic>
#include <sim/run_command.hpp>
#include <sim/subjects.hpp>
#include <tests/mpi/both_worlds.hpp>
#include <tpsim/layout/memory_values.hpp>

using namespace tpsim;
using namespace tpsim::test;

namespace {

/// Passes numbers on and counts them.
class Counted final : public Values {
 public:
  Counted(std::shared_ptr<const Values> values, std::atomic<Index>& count)
      : values_(std::move(values)), count_(&count) {}
  void read(Index row, Index col, std::span<float> out) const override {
    *count_ += static_cast<Index>(out.size());
    values_->read(row, col, out);
  }
  void read(Index row, Index col, std::span<double> out) const override {
    *count_ += static_cast<Index>(out.size());
    values_->read(row, col, out);
  }
  [[nodiscard]] DType dtype() const override { return values_->dtype(); }

 private:
  std::shared_ptr<const Values> values_;
  std::atomic<Index>* count_;
};

std::shared_ptr<const Values> numbers(Shape shape) {
  std::vector<float> all(static_cast<std::size_t>(shape.size()));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = 0.01F * static_cast<float>(i % 37) - 0.2F;
  return std::make_shared<MemoryValues>(shape, std::move(all));
}

}  // namespace

TEST_CASE("mpi checks: the numeric reading of a layer reads the rank's own part of its weights") {
  MpiWorld world;
  const Index n = world.size(), hidden = 10, intermediate = 12;  // 2, 3 and 4 ranks
  std::atomic<Index> count = 0;
  LayerSpec spec;
  spec.layer = "mlp", spec.tp = world.size(), spec.tokens = 3;
  spec.qkv.hidden = hidden, spec.intermediate = intermediate;
  for (const char* name : {"gate_proj.weight", "up_proj.weight"})
    spec.values[name] = std::make_shared<Counted>(numbers({intermediate, hidden}), count);
  spec.values["down_proj.weight"] =
      std::make_shared<Counted>(numbers({hidden, intermediate}), count);
  const auto subject = cli::subject_of(spec, "");
  NumericOptions options;
  const Index whole = 3 * hidden * intermediate;
  const auto alone = read_rounding(*subject, options);
  CHECK(count == 2 * whole);  // full() and all shards
  count = 0;
  options.world = &world;
  const auto together = read_rounding(*subject, options);
  CHECK(count == whole / n + (world.is_root() ? whole : 0));
  if (!world.is_root()) return;
  REQUIRE(together.size() == alone.size());
  for (std::size_t i = 0; i < alone.size(); ++i) {
    CHECK(together[i].result == Outcome::pass);
    CHECK(together[i].message == alone[i].message);
    CHECK(together[i].compared == alone[i].compared);
  }
}

TEST_CASE("mpi checks: a run of a checkpoint reads the rank's own part of its weights") {
  MpiWorld world;
  if (world.size() == 3) return;  // the fixture has 2 kv heads, or 4
  cli::RunRequest request;
  request.model =
      std::string(TPSIM_TEST_DATA) + (world.size() == 2 ? "/tiny-llama" : "/tiny-qwen3");
  request.tokens = {1, 2, 3}, request.generate = 2, request.tp = world.size();
  cli::RunModel model = cli::open_run(request);
  Index whole = 0;
  std::atomic<Index> count = 0;
  for (auto& tensor : model.stored) {
    if (tensor == nullptr) continue;
    auto counted = std::make_shared<StoredTensor>(*tensor);
    whole += counted->shape.size();
    counted->values = std::make_shared<Counted>(tensor->values, count);
    tensor = std::move(counted);
  }
  const cli::RunResult alone = run(request, model);
  CHECK(alone.passed());
  const Index all_ranks = count - 2 * whole;
  count = 0;
  request.world = &world;
  const cli::RunResult together = run(request, model);
  const Index own = alone.weight_bytes[static_cast<std::size_t>(world.has(0) ? 0 : 1)] / 4;
  // Rank 0 has the unsharded model and the run at tp 1 beside its own. A rank may hold rows of
  // padding, which nobody reads.
  const Index mine = count - (world.is_root() ? 2 * whole : 0);
  CHECK(mine <= own);
  CHECK(own < whole);
  const double all = sum_on_root(world, static_cast<double>(mine));
  if (world.is_root()) CHECK(all == static_cast<double>(all_ranks));
  if (world.is_root()) CHECK(together.weight_bytes == alone.weight_bytes);
}

TEST_CASE("mpi checks: a tp group inside a larger job is read as on virtual ranks") {
  MpiWorld world;
  if (world.size() != 4) return;
  LayerSpec spec;
  spec.layer = "mlp", spec.tp = 2, spec.tokens = 3;
  spec.qkv.hidden = 10, spec.intermediate = 12;
  for (const char* fault : {"", "missing-all-reduce", "skipped-collective"}) {
    const auto subject = cli::subject_of(spec, fault);
    for (const auto order : {GroupPlace::Order::consecutive, GroupPlace::Order::strided,
                             GroupPlace::Order::reversed}) {
      subject->place = {2, order};
      VerifyOptions options;
      options.numeric = false;  // it reads the layer's linear parts, which are jobs of their own
      const Report alone = verify(*subject, options);
      options.world = &world;
      const Report together = verify(*subject, options);
      if (!world.is_root()) continue;
      CHECK(together.passed() == std::string(fault).empty());
      REQUIRE(together.checks.size() == alone.checks.size());
      for (std::size_t i = 0; i < alone.checks.size(); ++i) {
        CHECK(together.checks[i].message == alone.checks[i].message);
        CHECK(together.checks[i].compared == alone.checks[i].compared);
        CHECK(together.checks[i].findings == alone.checks[i].findings);
      }
    }
  }
}
