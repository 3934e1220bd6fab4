// SPDX-License-Identifier: MIT
// Query, key and value projections in one layer, cut by heads: a rank holds some query heads and
// the kv heads that they read.
//
// 4 query heads of 2 rows each are full of 0, 1, 2, 3; the k heads of 10 and 11, the v heads of 20
// and 21. With 4 ranks there are more ranks than kv heads: neighbours hold the same one.
#include <tpsim/comm/virtual_ranks.hpp>
#include <tpsim/layers/linear.hpp>
#include <tpsim/layout/memory_values.hpp>

#include "print.hpp"

using namespace tpsim;

constexpr Index hidden = 3, head_dim = 2;

// [heads * head_dim, hidden], each head full of its number.
FullTensor heads(const char* name, const std::vector<float>& numbers) {
  std::vector<float> elements;
  for (const float n : numbers) elements.insert(elements.end(), head_dim * hidden, n);
  return memory_tensor(name, {static_cast<Index>(numbers.size()) * head_dim, hidden}, elements);
}

int main() {
  for (const int tp : {2, 4}) {
    VirtualRanks world{tp};
    world.run([&](Communicator& comm) {
      EigenBackend<float> backend(comm.rank());
      QKVParallelLinear<EigenBackend<float>> layer(
          backend, comm, {.hidden = hidden, .head_dim = head_dim, .heads = 4, .kv_heads = 2});
      layer.weight_loader(layer.weight, heads("q_proj.weight", {0, 1, 2, 3}), "q");
      layer.weight_loader(layer.weight, heads("k_proj.weight", {10, 11}), "k");
      layer.weight_loader(layer.weight, heads("v_proj.weight", {20, 21}), "v");

      // The first number of each row says which head the row belongs to.
      const Index q = layer.num_heads() * head_dim, kv = layer.num_kv_heads() * head_dim;
      const auto rows = [&](Index first, Index count) {
        return matrix_text(1, count, [&](auto, auto c) { return layer.weight.at(first + c, 0); });
      };
      fmt::print("tp {} rank {} q {} k {} v {}\n", tp, comm.rank(), rows(0, q), rows(q, kv),
                 rows(q + kv, kv));
    });
  }
}
