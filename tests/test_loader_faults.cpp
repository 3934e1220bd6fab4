// SPDX-License-Identifier: MIT
// Faults of weight_loaders: which checks find each of them, and which cause they name.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <tests/support/loader_shapes.hpp>

namespace loader_faults_tests {
namespace {

using namespace tpsim;
using namespace tpsim::testing;

constexpr const char* blocked = "blocked (one part after the other)";

std::string read_as(const std::string& order, const std::string& lies) {
  return "the fused tensor was read as if it lay " + order + ", but it lies " + lies + " on disk";
}

struct Case {
  std::string fault;
  LayerSpec spec;
  std::set<std::string> least;  // checks that must fail
  std::string cause;
  std::vector<std::string> also = {};  // further causes that are right: of another part, a bias
};

std::vector<Case> slice_cases() {
  const std::string zero = "the rank was taken as 0: every rank holds the first part",
                    next = "the rank was taken as one more: every rank holds the next rank's part",
                    whole = "tp was taken as 1: the rank holds the whole tensor",
                    again = "the cut was applied to data that was cut before",
                    offset = "the offset steps by ";
  const std::string dropped =
      "the last 2 rows of each part were dropped: its size was rounded down to whole blocks";
  return {
      {"rank-zero", small("column", 4), {"cover", "order", "state", "exact"}, zero},
      {"rank-zero", small("mlp", 4), {"cover", "order", "state", "exact"}, zero},
      {"rank-zero", shared_heads(), {"cover", "order", "state", "exact"}, zero},
      {"next-rank-part", small("row", 4), {"order", "partners", "state", "exact"}, next},
      {"next-rank-part", unequal_parts(), {"order", "state", "exact"}, next},
      {"next-rank-part", shared_heads(), {"order", "state", "exact", "replicas"}, next},
      {"not-cut", small("column", 4), {"divide", "cover", "order", "state", "exact"}, whole},
      {"not-cut", small("row", 4), {"divide", "cover", "order", "state", "exact"}, whole},
      {"not-cut", shared_heads(), {"divide", "cover", "order", "exact"}, whole},
      {"cut-twice", small("column", 4), {"cover", "order", "state", "exact"}, again},
      {"cut-twice", small("row", 4), {"cover", "order", "state", "exact"}, again},
      {"cut-twice", shared_heads(), {"cover", "order", "heads", "exact"}, again},
      {"wrong-dimension",
       small("column", 4),
       {"divide", "order", "exact"},
       "the weight was cut along its columns, not along its rows"},
      {"wrong-dimension",
       small("row", 4),
       {"divide", "order", "exact"},
       "the weight was cut along its rows, not along its columns"},
      {"padded-offset",
       small("column", 4),
       {"cover", "order", "state", "exact"},
       offset + "8 from part to part, a part has 6: a padded size was taken"},
      {"padded-offset",
       unequal_parts(),
       {"cover", "order", "state", "exact"},
       offset + "8 from part to part, a part has 3: a padded size was taken",
       {offset + "at least 6 from part to part, a part has 2: a padded size was taken"}},
      {"local-offset",
       uneven_rows(),
       {"cover", "order", "state", "exact"},
       offset + "1 from part to part, a part has 6: the local size was divided by tp once more"},
      {"off-by-one-rows",
       small("mlp", 4),
       {"cover", "order", "partners", "state", "exact"},
       "the offset is off by 1"},
      {"tail-dropped", small("column", 4), {"cover", "order", "state", "exact"}, dropped},
      {"tail-dropped",
       uneven_rows(),
       {"cover", "order", "state", "exact"},
       "the last 2 columns of each part were dropped: its size was rounded down to whole blocks"},
      {"tail-dropped", shared_heads(), {"cover", "order", "heads", "exact"}, dropped},
      {"never-written",
       small("column", 4),
       {"cover", "order", "state", "exact"},
       "the parameter was never loaded"},
      {"name-matched-in-part",
       equal_parts(),
       {"cover", "order", "state", "exact"},
       "up_proj.weight was loaded into the place of gate",
       {"two tensors are written to the same rows: the last one stays"}},
      {"name-matched-in-part",
       shared_heads(),
       {"cover", "order", "heads", "exact"},
       "v_proj.weight was loaded into the place of k",
       {"two tensors are written to the same rows: the last one stays"}},
  };
}

std::vector<Case> bias_cases() {
  const std::string first = "the bias was not cut: every rank holds its first entries";
  return {
      {"bias-never-read",
       small("row", 4),
       {"cover", "order", "partners", "exact"},
       "the parameter was never loaded"},
      {"bias-not-cut", small("column", 4), {"cover", "order", "partners", "exact"}, first},
      {"bias-not-cut", unequal_parts(), {"cover", "order", "partners", "exact"}, first},
      {"bias-not-cut", shared_heads(), {"cover", "order", "partners", "exact"}, first},
      {"row-bias-cut",
       small("row", 4),
       {"cover", "order", "partners", "exact"},
       "bias was cut, but belongs whole on every rank"},
      {"row-bias-cut",
       small("mlp", 4),
       {"cover", "order", "exact"},
       "down_proj.bias was cut, but belongs whole on every rank"},
      {"fused-bias-cut-as-one",
       unequal_parts(),
       {"order", "partners", "exact"},
       "the fused tensor was cut as one block"},
      {"fused-bias-cut-as-one",
       group_heads(),
       {"order", "partners", "heads", "exact"},
       "the fused tensor was cut as one block"},
  };
}

std::vector<Case> head_cases() {
  return {
      {"k-v-exchanged",
       group_heads(),
       {"order", "heads", "state", "exact"},
       "the parts k and v are exchanged",
       {"the parts v and k are exchanged"}},
      {"q-k-exchanged",
       heads(8, 8, 4),
       {"order", "heads", "state", "exact"},
       "the parts q and k are exchanged",
       {"the parts k and q are exchanged"}},
      {"kv-head-modulo",
       shared_heads(),
       {"order", "heads", "state", "exact", "replicas"},
       "replicas were dealt out by rank % parts"},
      {"kv-head-zero",
       shared_heads(),
       {"cover", "order", "heads", "exact"},
       "the kv heads do not follow the rank: every rank holds the first"},
      {"kv-head-zero",
       group_heads(),
       {"cover", "order", "heads", "exact"},
       "the kv heads do not follow the rank: every rank holds the first"},
      {"off-by-one-head",
       shared_heads(),
       {"cover", "order", "heads", "exact"},
       "the offset is off by one head (6 rows)"},
      {"global-head-count",
       group_heads(),
       {"cover", "order", "heads", "exact"},
       "a part of the parameter was never loaded"},
      {"even-head-dim",
       shared_heads(),
       {"divide", "cover", "order", "exact"},
       "head_dim was taken as hidden / heads (4), it is 6"},
      {"kv-heads-as-heads",
       shared_heads(),
       {"divide", "cover", "order", "exact"},
       "the layer was made for 8 kv heads, the model has 2"},
  };
}

std::vector<Case> fused_cases() {
  const std::string block = "the fused tensor was cut as one block",
                    twice = "the rows of the fused tensor were reordered twice";
  return {
      {"gate-up-exchanged",
       equal_parts(),
       {"order", "state", "exact"},
       "the parts gate and up are exchanged",
       {"the parts up and gate are exchanged"}},
      {"fused-cut-as-one", unequal_parts(), {"order", "state", "exact"}, block},
      {"fused-cut-as-one", small("mlp", 4), {"order", "partners", "state", "exact"}, block},
      {"fused-cut-as-one", shared_heads(), {"cover", "order", "heads", "exact"}, block},
      {"local-heads-on-disk",
       shared_heads(),
       {"cover", "order", "heads", "exact"},
       "k and v were looked for behind the rank's own heads, not behind all"},
      {"equal-thirds",
       shared_heads(),
       {"cover", "order", "heads", "exact"},
       "the fused tensor was taken for three equal parts"},
      {"per-head-read-as-blocked",
       heads(8, 8, 4),
       {"order", "heads", "state", "exact"},
       read_as(blocked, "per head")},
      {"kv-group-read-as-blocked",
       shared_heads(),
       {"order", "heads", "state", "exact"},
       read_as(blocked, "per kv group")},
      {"kv-group-read-as-blocked",
       group_heads(),
       {"order", "heads", "state", "exact"},
       read_as(blocked, "per kv group")},
      {"kv-group-read-as-per-head",
       shared_heads(),
       {"cover", "order", "heads", "exact"},
       "the parameter was never loaded"},  // the parts have other sizes: refused
      {"stripes-read-as-blocked",
       unequal_parts(),
       {"order", "state", "exact"},
       read_as(blocked, "in 4 stripes (cut before)")},
      {"stripes-read-as-blocked",
       group_heads(),
       {"order", "heads", "state", "exact"},
       read_as(blocked, "in 2 stripes (cut before)")},
      {"blocked-read-as-stripes", unequal_parts(), {"order", "state", "exact"}, block},
      {"blocked-read-as-stripes",
       shared_heads(),  // as many stripes as kv heads
       {"order", "heads", "state", "exact"},
       read_as("per kv group", blocked)},
      {"interleaved-read-as-halves",
       small("mlp", 4),
       {"order", "partners", "state", "exact"},
       read_as(blocked, "row by row")},
      {"halves-read-as-interleaved",
       small("mlp", 4),
       {"order", "partners", "state", "exact"},
       read_as("row by row", blocked)},
      {"reordered-twice", small("mlp", 4), {"order", "partners", "state", "exact"}, twice},
      {"reordered-twice", group_heads(), {"order", "heads", "state", "exact"}, twice},
  };
}

void check_cases(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    INFO(c.fault << " " << c.spec.layer << " tp " << c.spec.tp);
    const Report report = verify(*make_faulty_subject(c.spec, c.fault));
    const std::set<std::string> ids = failed(report);
    for (const std::string& id : c.least) {
      INFO(id);
      CHECK(ids.count(id) == 1);
    }
    // Where the shards themselves are judged, no cause may be a wrong one.
    bool told = false;
    for (const char* id : {"divide", "order", "heads"})
      for (const Finding& f : check(report, id).findings) {
        INFO(f.message << ": " << f.cause);
        CHECK((f.cause == c.cause ||
               std::find(c.also.begin(), c.also.end(), f.cause) != c.also.end()));
        CHECK(!f.repair.empty());
        CHECK(!f.tensor.empty());
        told = told || f.cause == c.cause;
      }
    CHECK(told);
  }
}

}  // namespace

TEST_CASE("loader faults: slices of the wrong rank, size, offset or dimension are told apart") {
  check_cases(slice_cases());
}
TEST_CASE("loader faults: biases that are not cut as their weights are told apart") {
  check_cases(bias_cases());
}
TEST_CASE("loader faults: wrong heads, head counts and head sizes are told apart") {
  check_cases(head_cases());
}
TEST_CASE("loader faults: fused tensors read in another order than on disk are told apart") {
  check_cases(fused_cases());
}

TEST_CASE("loader faults: the tables have every one of them") {
  std::set<std::string> seen{"arrival-order"};  // below
  for (const auto& cases : {slice_cases(), bias_cases(), head_cases(), fused_cases()})
    for (const Case& c : cases) seen.insert(c.fault);
  for (const Fault& f : detail::loader_faults()) {
    INFO(f.name);
    CHECK(seen.count(f.name) == 1);
  }
}

TEST_CASE("loader faults: a place that depends on the order of arrival is found by a second load") {
  for (const LayerSpec& s : {unequal_parts(), shared_heads(), small("mlp", 4)}) {
    const Report report = verify(*make_faulty_subject(s, "arrival-order"));
    INFO(s.layer);
    CHECK(failed(report) == std::set<std::string>{"order"});  // the first load is right by luck
    const std::vector<Finding>& found = check(report, "order").findings;
    REQUIRE(found.size() == 1);
    CHECK(found[0].message.find("when the tensors arrive in reverse") != std::string::npos);
    CHECK(found[0].cause == "the loader places a tensor by what came before it");
    CHECK(found[0].repair == "take the place from the tensor's name or shard id");
  }
  const LayerSpec one_tensor = small("column", 4);
  CHECK(make_subject(one_tensor)->tensors.size() == 1);
  CHECK(failed(verify(*make_subject(one_tensor))).empty());
}

}  // namespace loader_faults_tests
