// SPDX-License-Identifier: MIT
// Layers know no library: this file compiles every layer for a backend that is nothing but shapes.
//
// Compiled to an object only. `g++ -M` of it must list every header of include/tpsim/layers and no
// path of Eigen, CUDA, MPI, NCCL or Boost.
#include <tpsim/layers/attention.hpp>
#include <tpsim/layers/attention_options.hpp>
#include <tpsim/layers/batch.hpp>
#include <tpsim/layers/causal_lm.hpp>
#include <tpsim/layers/decoder_layer.hpp>
#include <tpsim/layers/decoder_options.hpp>
#include <tpsim/layers/head_vector.hpp>
#include <tpsim/layers/linear.hpp>
#include <tpsim/layers/linear_options.hpp>
#include <tpsim/layers/lm_head.hpp>
#include <tpsim/layers/load.hpp>
#include <tpsim/layers/mlp.hpp>
#include <tpsim/layers/norm.hpp>
#include <tpsim/layers/parallel_norm.hpp>
#include <tpsim/layers/shard_id.hpp>
#include <tpsim/layers/vocab_embedding.hpp>
#include <tpsim/layers/vocab_options.hpp>

#include <tests/support/dummy_backend.hpp>

namespace tpsim {

template class LinearBase<testing::DummyBackend>;
template class ReplicatedLinear<testing::DummyBackend>;
template class ColumnParallelLinear<testing::DummyBackend>;
template class MergedColumnParallelLinear<testing::DummyBackend>;
template class QKVParallelLinear<testing::DummyBackend>;
template class RowParallelLinear<testing::DummyBackend>;
template class GatedMLP<testing::DummyBackend>;
template class PlainMLP<testing::DummyBackend>;
template class RMSNorm<testing::DummyBackend>;
template class LayerNorm<testing::DummyBackend>;
template class StreamNorm<testing::DummyBackend>;
template class ParallelRMSNorm<testing::DummyBackend>;
template class HeadVector<testing::DummyBackend>;
template class KvCache<testing::DummyBackend>;
template class ParallelAttention<testing::DummyBackend>;
template class DecoderLayer<testing::DummyBackend>;
template class CausalLM<testing::DummyBackend>;
template class VocabParallelEmbedding<testing::DummyBackend>;
template class ParallelLMHead<testing::DummyBackend>;

}  // namespace tpsim
