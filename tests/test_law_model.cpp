// SPDX-License-Identifier: MIT
// Every law on the layers that are cut over the vocabulary, and on a decoder and its parts.
#include <tests/support/catch.hpp>

#include <properties/catch.hpp>
#include <sim/subjects.hpp>

namespace law_model_tests {

using namespace tpsim;
namespace laws = tpsim::properties;

TEST_CASE("laws: all hold on the embedding") {
  // One tensor, never fused, no heads.
  CHECK(laws::run_all_laws({.layer = "embedding"}) ==
        std::vector<std::string>{"load-order", "disk-order", "heads"});
}

TEST_CASE("laws: all hold on the head") {
  CHECK(laws::run_all_laws({.layer = "lm_head"}) ==
        std::vector<std::string>{"disk-order", "heads"});
}

TEST_CASE("laws: all hold on the norm") {
  CHECK(laws::run_all_laws({.layer = "norm"}) ==
        std::vector<std::string>{"integer", "disk-order", "heads"});
}
TEST_CASE("laws: all hold on attention") {
  CHECK(laws::run_all_laws({.layer = "attention"}) == std::vector<std::string>{"disk-order"});
}
TEST_CASE("laws: all hold on a decoder layer") {
  CHECK(laws::run_all_laws({.layer = "decoder"}) == std::vector<std::string>{"disk-order"});
}

}  // namespace law_model_tests
