// expect: BackendHasLookup
// SPDX-License-Identifier: MIT
// A backend without table lookups is refused by the name of what it lacks.
#include <tpsim/layers/vocab_embedding.hpp>

#include <tests/support/dummy_backend.hpp>

template class tpsim::VocabParallelEmbedding<tpsim::testing::WithoutLookup>;
