// SPDX-License-Identifier: MIT
// Faults of weight_loaders: the shapes that hide them, and those that are chosen to show them.
#include <string>
#include <utility>
#include <vector>

#include <tests/support/loader_shapes.hpp>

namespace loader_fault_shapes_tests {

using namespace tpsim;
using namespace tpsim::testing;

TEST_CASE("loader faults: a shape that hides one hides it from every reading") {
  LayerSpec even_heads = heads(8, 2, 4);
  even_heads.qkv.hidden = 48;  // heads times head_dim
  LayerSpec whole_blocks = small("column", 4);
  whole_blocks.out = 32;
  LayerSpec one_rank = small("column", 1);
  const std::vector<std::pair<std::string, LayerSpec>> hidden{
      {"rank-zero", one_rank},
      {"not-cut", one_rank},
      {"cut-twice", one_rank},
      {"off-by-one-head", heads(8, 2, 1)},
      {"kv-head-modulo", shared_heads(2)},  // as many ranks as kv heads
      {"kv-head-modulo", heads(8, 1, 4)},
      {"kv-head-zero", heads(8, 1, 4)},
      {"padded-offset", whole_blocks},
      {"tail-dropped", whole_blocks},
      {"even-head-dim", even_heads},
      {"kv-heads-as-heads", heads(8, 8, 4)},
      {"equal-thirds", heads(8, 8, 4)},
      {"kv-group-read-as-blocked", heads(8, 1, 4)},
      {"kv-group-read-as-per-head", heads(8, 8, 4)},
      // A contiguous block of an order that is already by rank is the rank's part.
      {"fused-cut-as-one", stored(shared_heads(2), "kv*(q:g*d + k:d + v:m)")},
      {"fused-cut-as-one", stored(heads(12, 4, 4), "kv*(q:g*d + k:d + v:m)")},
      {"fused-cut-as-one", stored(unequal_parts(), "4*(gate:3 + up:2)")},
  };
  for (const auto& [fault, spec] : hidden) {
    INFO(fault << " " << spec.layer << " tp " << spec.tp);
    const Report report = verify(*make_faulty_subject(spec, fault));
    CHECK(failed(report).empty());
    CHECK(check(report, "order").compared > 0);
    CHECK(check(report, "exact").compared > 0);
  }
}

TEST_CASE("loader faults: sizes that show a fault are legal and show it") {
  LayerSpec qkv = heads(8, 8, 4), one_kv = heads(8, 1, 4), even = heads(8, 2, 4);
  even.qkv.hidden = 48;
  LayerSpec column = small("column", 4), row = small("row", 4), mlp = small("mlp", 4);
  column.out = row.in = mlp.intermediate = 32;
  LayerSpec merged = small("merged", 4);
  merged.parts = {{"a", 32}, {"b", 64}};
  LayerSpec narrow = small("column", 4);
  narrow.in = 15;  // columns that do not divide
  const std::vector<std::pair<std::string, LayerSpec>> cases{{"padded-offset", column},
                                                             {"padded-offset", row},
                                                             {"padded-offset", mlp},
                                                             {"padded-offset", merged},
                                                             {"padded-offset", even},
                                                             {"tail-dropped", column},
                                                             {"tail-dropped", row},
                                                             {"tail-dropped", mlp},
                                                             {"tail-dropped", merged},
                                                             {"wrong-dimension", narrow},
                                                             {"kv-head-modulo", qkv},
                                                             {"kv-head-zero", one_kv},
                                                             {"kv-heads-as-heads", qkv},
                                                             {"equal-thirds", qkv},
                                                             {"even-head-dim", even},
                                                             {"kv-group-read-as-blocked", one_kv},
                                                             {"kv-group-read-as-per-head", qkv},
                                                             {"q-k-exchanged", even},
                                                             {"stripes-read-as-blocked", one_kv}};
  for (const auto& [fault, asked] : cases) {
    INFO(fault << " " << asked.layer);
    const LayerSpec shown = spec_for_fault(asked, fault);
    REQUIRE(violations(shown).empty());
    VerifyOptions cheap;
    cheap.numeric = false;
    CHECK(!verify(*make_faulty_subject(shown, fault), cheap).passed());
  }
}

}  // namespace loader_fault_shapes_tests
