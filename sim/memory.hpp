// SPDX-License-Identifier: MIT
// Sizes that this machine cannot hold are refused before memory is asked for.
#pragma once

#include <string>

#include <tpsim/verify/subject.hpp>

namespace tpsim::cli {

/// About the bytes of the activations of a reading, on all ranks and in full(): 8 for each field
/// element or double.
/// @param inside  columns between input and output, of all ranks and of full() together
[[nodiscard]] double activation_bytes(const Subject& subject, Index tokens, int tp, double inside);
/// The columns inside a decoder layer, or its attention: q, k, v and what attention makes of them,
/// gate and up.
[[nodiscard]] double columns_inside(const QkvShape& qkv, Index intermediate);
/// A checkpoint's weights are kept as floats, whole and as shards; others are made while they are
/// read.
inline constexpr double bytes_of_kept_weight = 8;

/// Bytes that this process may use: of the machine, its control group, or TPSIM_MEMORY_MIB, the
/// least. @throws UsageError for a variable that is no number
[[nodiscard]] double memory_limit();

/// @throws UsageError "WHO about N GiB FOR_WHAT, and M GiB may be used"
void require_memory(double bytes, const std::string& who, const std::string& for_what,
                    const std::string& hint);

}  // namespace tpsim::cli
