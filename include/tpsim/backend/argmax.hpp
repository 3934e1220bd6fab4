// SPDX-License-Identifier: MIT
// What a backend must offer to choose the greatest of columns that lie on several ranks.
#pragma once

#include <string>

#include <tpsim/backend/backend.hpp>

namespace tpsim {

/// largest(x, first_id): of each token the greatest column of x [tokens, n], where column c has the
///   id first_id + c -> a pair [tokens, 2]: its value, its id. Of no columns (n = 0) a pair that
///   every other pair beats.
/// best_of(pairs): pairs side by side [tokens, 2 k] -> [tokens, 1], the id of the greatest value.
/// Of equal values the smallest id wins, however the columns are cut; a NaN is greater than every
/// number, as in torch. Both keep an id as it is, whatever the model's type: in f32 that is exact
/// below 2^24, and greater ids are refused.
/// Source: vLLM `logits_processor.py` get_top_tokens, which gathers such pairs in f32.
template <class B>
concept BackendHasArgmax = requires(B& b, const typename B::Tensor& x, Index first_id) {
  { b.largest(x, first_id) } -> std::same_as<typename B::Tensor>;
  { b.best_of(x) } -> std::same_as<typename B::Tensor>;
};

/// Ids lie below it. It is exact in f32 too, and stands for no column at all.
inline constexpr Index no_choice = Index{1} << 24;

/// Shared by every backend's largest(). @throws LayoutError (names)
inline void require_ids_exact(Index first_id, Index columns) {
  if (first_id < 0 || columns > no_choice - first_id)
    throw LayoutError(
        "ids of a choice have to be exact in f32",
        {{"names", "ids [" + std::to_string(first_id) + ", " + std::to_string(first_id + columns) +
                       ") are not all below " + std::to_string(no_choice)}});
}
/// Shared by every backend's best_of(). @return how many pairs. @throws LayoutError (divide)
[[nodiscard]] inline Index require_pairs(Shape pairs) {
  if (pairs.cols() < 2 || pairs.cols() % 2 != 0)
    throw LayoutError("a choice needs pairs of a value and an id",
                      {{"divide", std::to_string(pairs.cols()) + " columns are no pairs"}});
  return pairs.cols() / 2;
}

}  // namespace tpsim
