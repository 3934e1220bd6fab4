// SPDX-License-Identifier: MIT
// Fills the data of a safetensors file from several threads.
#pragma once

#include <span>

#include <tpsim/checkpoint/safetensors_writer.hpp>

#include "new_files.hpp"

namespace tpsim::checkpoint_detail {

/// Writes the tensors of `shard`, one after the other from byte `begin` of the file on. A thread
/// keeps one piece of at most 1 MiB in memory. The bytes do not depend on the threads.
/// @param threads  0: as many as there are processors
/// @throws the first error of `fill` or of the file, after all threads have stopped
void fill_file(const NewFile& file, Index begin, std::span<const NewTensor> tensors,
               const ShardFile& shard, const FillTensor& fill, int threads);

}  // namespace tpsim::checkpoint_detail
