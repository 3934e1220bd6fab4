// SPDX-License-Identifier: MIT
// Law: merge(shard(x)) == x.
#pragma once

#include <properties/laws/observe.hpp>

namespace tpsim::properties {

/// Loads tensors whose every element is different, puts the ranks' params together again where the
/// declaration says, and compares with what was loaded. Ranks that share an element must agree.
[[nodiscard]] inline Verdict merging_the_shards_gives_the_tensor(const Candidate& candidate,
                                                                 const Case& c) {
  const std::unique_ptr<Subject> subject = candidate.subject(c);
  const ElementTags tags(*subject);
  std::vector<DiskTensor> tensors;
  for (const DiskTensor& t : subject->tensors) tensors.push_back(tagged(t, tags));
  Verdict out;
  const LoadedParams loaded = load_params(*subject, tensors, out.because);

  std::map<std::string, std::vector<std::optional<double>>> merged;
  for (const DeclaredParam& param : subject->params)
    for (std::size_t r = 0; r < loaded.size(); ++r) {
      const auto found = loaded[r].find(param.name);
      std::size_t next = 0;
      for (const DeclaredPart& part : param.parts) {
        auto& whole = merged[part.tensor->name];
        whole.resize(static_cast<std::size_t>(part.tensor->shape.size()));
        for (Index i = 0; i < part.rows[r].size(); ++i)
          for (Index j = 0; j < part.cols[r].size(); ++j, ++next) {
            if (found == loaded[r].end() || next >= found->second.size())
              return {1, "rank " + std::to_string(r) + " " + param.name + " is too small"};
            const double value = found->second[next];
            auto& slot = whole[static_cast<std::size_t>(
                part.rows[r][i] * part.tensor->shape.cols() + part.cols[r][j])];
            if (slot && *slot != value && out.because.empty())
              out.because = part.tensor->name + ": ranks hold different values of one element";
            slot = value;
          }
      }
    }
  for (const DiskTensor& t : subject->tensors)
    for (const Logical& tensor : t.logical) {
      const auto& whole = merged[tensor->name];
      for (Index row = 0; row < tensor->shape.rows(); ++row)
        for (Index col = 0; col < tensor->shape.cols(); ++col) {
          ++out.compared;
          const auto at = static_cast<std::size_t>(row * tensor->shape.cols() + col);
          const double wanted = static_cast<double>(tags.at(*tensor, row, col));
          if (at < whole.size() && whole[at] && *whole[at] == wanted) continue;
          if (out.because.empty())
            out.because = tensor->name + " row " + std::to_string(row) + " column " +
                          std::to_string(col) + " comes back as another element, or not at all";
        }
    }
  return out;
}

}  // namespace tpsim::properties
