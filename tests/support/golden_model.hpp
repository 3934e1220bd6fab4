// SPDX-License-Identifier: MIT
// Checkpoints of tests/data as decoders on virtual ranks, and the numbers that transformers gave.
#pragma once

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/backend/eigen/eigen_backend.hpp>
#include <tpsim/checkpoint/load_model.hpp>
#include <tpsim/comm/virtual_ranks.hpp>

#include <tests/support/catch.hpp>
#include <tests/support/test_files.hpp>

namespace tpsim::test {

using Exact = EigenBackend<double>;
using Single = EigenBackend<float>;

/// golden.safetensors of a checkpoint.
class Golden {
 public:
  explicit Golden(const std::filesystem::path& folder) : file_(folder / "golden.safetensors") {}
  [[nodiscard]] std::vector<Index> ids(const std::string& name) const {
    std::vector<Index> out(file_.raw(name).size() / sizeof(Index));
    REQUIRE(file_.header().find(name)->dtype == "I64");
    std::memcpy(out.data(), file_.raw(name).data(), out.size() * sizeof(Index));
    return out;
  }
  [[nodiscard]] eigen::Matrix<double> numbers(const std::string& name) const {
    const CheckpointTensor t = file_.tensor(name);
    eigen::Matrix<double> out(t.shape.rows(), t.shape.cols());
    for (Index r = 0; r < out.rows(); ++r)
      t.values->read(r, 0, {out.data() + r * out.cols(), static_cast<std::size_t>(out.cols())});
    return out;
  }
  [[nodiscard]] bool has(const std::string& name) const {
    return file_.header().find(name) != nullptr;
  }

 private:
  SafetensorsFile file_;
};

inline std::string content_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  REQUIRE(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A folder with config.json and weights.
struct GoldenModel {
  explicit GoldenModel(const std::filesystem::path& folder)
      : model(bind_model(content_of(folder / "config.json"), folder.string())),
        stored(open_model_tensors(model, CheckpointFiles(folder))) {}
  BoundModel model;
  StoredModel stored;
};

/// Every checkpoint of tests/data that has golden logits, sorted.
inline std::vector<std::string> golden_models() {
  std::vector<std::string> names;
  for (const auto& each : std::filesystem::directory_iterator(test_data("")))
    if (std::filesystem::exists(each.path() / "golden.safetensors") &&
        Golden(each.path()).has("logits"))
      names.push_back(each.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// The decoder on every rank, loaded; f(comm, b, net) once for each.
template <class B, class F>
void on_ranks(const GoldenModel& from, int tp, DType rule, F&& f) {
  EigenOptions options;
  options.track_bounds = true;
  VirtualRanks world(tp);
  world.run([&](Communicator& comm) {
    B b(comm.rank(), rule, options);
    CausalLM<B> net(b, comm, from.model.shape);
    load_model(net, from.model, from.stored);
    f(comm, b, net);
  });
}

inline Index best_of(const eigen::Matrix<double>& logits, Index row) {
  Index best = 0;
  logits.row(row).maxCoeff(&best);
  return best;
}

}  // namespace tpsim::test
