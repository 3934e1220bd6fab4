// SPDX-License-Identifier: MIT
// The report's account of who holds what, of the collectives and of the cost, from what was seen.
#pragma once

#include <tpsim/verify/static_reading.hpp>

namespace tpsim {
namespace detail {

/// "q heads 0-7", "kv head 3", "gate", or "" for what the runs [begin, end) of a tensor are called.
[[nodiscard]] inline std::string piece_label(const Subject& subject, const DeclaredParam& param,
                                             const HeldRun& run) {
  if (!run.tensor || run.source.empty()) return "never written";
  for (const DeclaredPart& part : param.parts) {
    if (part.tensor != run.tensor) continue;
    if (part.granule_name.empty() || !subject.heads) return part.label;
    const Index first = run.source[0], last = run.source[run.source.size() - 1];
    if (first % part.granule != 0 || (last + 1) % part.granule != 0) return part.label + " rows";
    const Index begin = first / part.granule, end = last / part.granule;
    return begin == end
               ? part.label + " head " + std::to_string(begin)
               : part.label + " heads " + std::to_string(begin) + "-" + std::to_string(end);
  }
  return run.tensor->name;
}

inline void append_pieces(Shard& shard, const Subject& subject, const DeclaredParam& param,
                          const DeclaredPart& part, const Runs& wanted, Index begin,
                          const std::vector<HeldRun>& runs) {
  for (const HeldRun& held : runs) {
    Index at = held.begin;
    for (const Run& run : held.source) {
      HeldRun one{at, held.tensor, {}};
      one.source.append(run);
      ShardPiece piece{at,
                       at + run.length,
                       held.tensor ? held.tensor->name : "",
                       run.begin,
                       run.last() + 1,
                       run.stride,
                       piece_label(subject, param, one),
                       part.label};
      piece.as_declared =
          held.tensor == part.tensor && one.source == wanted.slice(at - begin, run.length);
      shard.pieces.push_back(std::move(piece));
      at += run.length;
    }
  }
}

}  // namespace detail

[[nodiscard]] inline std::vector<TensorReport> shard_reports(const Subject& subject,
                                                             const std::vector<HeldRank>& held) {
  std::vector<TensorReport> out;
  for (std::size_t p = 0; p < subject.params.size(); ++p) {
    const DeclaredParam& param = subject.params[p];
    TensorReport report{param.name, param.tp_dim, param.full_shape, {}};
    for (std::size_t r = 0; r < held.size(); ++r) {
      const HeldParam& have = held[r][p];
      Shard shard{static_cast<int>(r), have.shape, {}};
      if (param.tp_dim == 1) {
        detail::append_pieces(shard, subject, param, param.parts[0], param.parts[0].cols[r], 0,
                              held_columns(have));
      } else {
        for (std::size_t k = 0; k < param.parts.size(); ++k) {
          const auto [offset, size] = part_rows(param, k, r);
          detail::append_pieces(shard, subject, param, param.parts[k], param.parts[k].rows[r],
                                offset, held_rows(have, offset, offset + size));
        }
        if (const Index n = param.padding_of(r); n > 0) {
          const Index end = have.shape.rows();
          const bool zeros = param.fill == Fill::zero;
          ShardPiece piece{end - n,
                           end,
                           "",
                           0,
                           0,
                           1,
                           detail::count_of(n, "row") + (zeros ? " of zeros" : " like the last"),
                           "padding"};
          piece.as_declared = detail::is_padding(param, have, end - n, end);
          if (!piece.as_declared) piece.label = zeros ? "no zeros" : "not like the last row";
          shard.pieces.push_back(std::move(piece));
        }
      }
      report.shards.push_back(std::move(shard));
    }
    out.push_back(std::move(report));
  }
  return out;
}

[[nodiscard]] inline std::vector<CollectiveReport> collective_reports(const Trace& trace,
                                                                      DType dtype) {
  std::vector<CollectiveReport> out;
  for (const CollectiveRecord& r : trace) {
    if (r.op == CollectiveOp::split) continue;
    CollectiveReport c{std::string(name(r.op)),
                       r.group == "world" ? "tp" : r.group,
                       std::string(name(dtype)),
                       where(r.at),
                       r.shape,
                       r.shape.size() * bytes_of(dtype)};
    if (const std::string prefix = "tpsim/"; c.at.starts_with(prefix))
      c.at = c.at.substr(prefix.size());
    out.push_back(std::move(c));
  }
  return out;
}

/// Bytes of weights, activations on the wire and kv cache in `dtype`; FLOP as the ranks compute.
[[nodiscard]] inline Cost cost_in(const StaticReading& statics, const Subject& subject,
                                  DType dtype) {
  Cost cost = statics.cost;
  const Index f32 = bytes_of(DType::f32), bytes = bytes_of(dtype);
  for (Index& b : cost.weight_bytes) b = b / f32 * bytes;
  cost.full_weight_bytes = cost.full_weight_bytes / f32 * bytes;
  // Groups of one split are alike, so a rank's share is what all ranks send, over the ranks.
  Index wire = 0;
  for (const CollectiveRecord& r : statics.trace)
    wire +=
        wire_bytes(r.op, r.array_bytes / bytes_of(r.dtype) * bytes, r.group_size) * r.group_size;
  wire /= subject.tp;
  for (std::size_t r = 0; r < cost.weight_bytes.size(); ++r) {
    cost.wire_bytes.push_back(wire);
    Index kv = 0;
    if (const std::vector<HeadParts> parts = head_parts(subject); !parts.empty())
      for (const PartPlace& place : {parts.front().k, parts.front().v})
        kv += subject.params[place.param].parts[place.part].rows[r].size() * bytes;
    cost.kv_bytes_per_token.push_back(kv);
  }
  return cost;
}

}  // namespace tpsim
