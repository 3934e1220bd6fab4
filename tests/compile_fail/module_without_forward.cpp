// expect: RankHasForward
// SPDX-License-Identifier: MIT
// A module whose rank computes nothing is refused by the name of what it lacks.
#include <tpsim/verify/module.hpp>

#include <tests/support/square_mlp.hpp>

template <tpsim::Backend B>
struct Silent : stranger::SquareMlp<B> {
  using stranger::SquareMlp<B>::SquareMlp;
  void forward() {}
};
struct SilentModule : stranger::SquareMlpModule<> {
  template <class B>
  using Rank = Silent<B>;
};
tpsim::Report report() {
  return tpsim::verify(SilentModule{}, stranger::SquareShape{8, 12}, {.tp = 2});
}
