// SPDX-License-Identifier: MIT
// The one place that instantiates every layer on the CUDA backend. It is compiled whether nvcc is
// there or not: without it cuda::Device is sim/cuda/none.cpp.
#include "sim/cuda_numeric.hpp"

#include <fmt/format.h>

#include <tpsim/backend/cuda/bounded_backend.hpp>

#include "sim/on_device.hpp"
#include "sim/request.hpp"
#include "sim/subjects.hpp"

namespace tpsim {
namespace {

using Cuda = BoundedCudaBackend;

template <class... Subjects>
std::unique_ptr<ModuleOn<Cuda>> made_by(const Subject& subject, Cuda& b, Communicator& comm) {
  std::unique_ptr<ModuleOn<Cuda>> out;
  const auto one = [&](const auto* known) {
    if (known != nullptr) out = known->module(b, comm);
    return known != nullptr;
  };
  if (!(one(dynamic_cast<const Subjects*>(&subject)) || ...))
    throw std::logic_error("the CUDA backend does not know layer " + subject.layer);
  return out;
}

}  // namespace

/// What Subject::make() calls for this backend.
std::unique_ptr<ModuleOn<Cuda>> make_module(const Subject& subject, Cuda& b, Communicator& comm) {
  return made_by<LinearPart, LinearSubject<RealLayers>, LinearSubject<FaultyLayers>,
                 VocabSubject<RealVocabLayers>, VocabSubject<FaultyVocabLayers>,
                 DecoderSubject<RealDecoderLayers>, DecoderSubject<FaultyDecoderLayers>>(subject, b,
                                                                                         comm);
}

namespace cli {
namespace {

class CudaEngine final : public NumericEngine {
 public:
  explicit CudaEngine(bool tf32) : tf32_(tf32) {}
  [[nodiscard]] CheckResult integers(const Subject& s, const NumericOptions& o) const override {
    return on_device([&] { return read_integers_on<Cuda>(s, own(o)); });
  }
  [[nodiscard]] std::vector<CheckResult> rounding(const Subject& s,
                                                  const NumericOptions& o) const override {
    return on_device([&] { return read_rounding_on<Cuda>(s, own(o)); });
  }

 private:
  [[nodiscard]] NumericOptions own(NumericOptions o) const {
    o.tf32 = tf32_;
    return o;
  }
  bool tf32_;
};

}  // namespace

std::string parse_backend(const Given& given) {
  const auto it = given.find("backend");
  if (it == given.end()) return "eigen";
  require_choice("backend", it->second, {"eigen", "cuda"}, "backends are eigen and cuda");
  if (it->second == "eigen") return it->second;
  if (!cuda::Device::is_built())
    throw UsageError(
        "this tpsim was built without the CUDA backend",
        "use --backend eigen; with nvcc in the PATH, configure anew (cmake --fresh) and "
        "build again");
  if (cuda::Device::count() == 0)
    throw UsageError(fmt::format("no CUDA device: {}", cuda::Device::why_none()),
                     "use --backend eigen, or a machine with an NVIDIA GPU and its driver");
  return it->second;
}

bool parse_tf32(const Given& given, const std::string& backend, std::optional<DType> dtype) {
  if (given.count("tf32") == 0) return false;
  if (backend != "cuda")
    throw UsageError("--tf32 is about products of a GPU, and the CPU has no TF32",
                     "add --backend cuda, or leave --tf32 out");
  require_tf32_applies(dtype.value_or(DType::f32));
  return true;
}

void require_tf32_applies(DType dtype) {
  if (dtype != DType::f32)
    throw UsageError(
        fmt::format("--tf32 cuts the factors of f32 products, and the dtype is {}", name(dtype)),
        "use --dtype f32, or leave --tf32 out");
}

void require_fault_runs(const std::string& fault, const std::string& backend) {
  if (fault == "bf16-sum" && backend == "cuda")
    throw UsageError("the fault bf16-sum rounds numbers in the CPU's memory",
                     "use --backend eigen for it");
}

std::string cuda_device() { return cuda::Device::shared().name(); }

std::vector<std::string> backend_texts(const std::string& backend, bool tf32) {
  if (backend != "cuda") return {};
  std::vector<std::string> out{"backend cuda on " + on_device([] { return cuda_device(); })};
  if (tf32) out.emplace_back("tf32");
  return out;
}

std::unique_ptr<NumericEngine> engine_of(const std::string& backend, bool tf32) {
  if (backend != "cuda") return nullptr;
  return std::make_unique<CudaEngine>(tf32);
}

}  // namespace cli
}  // namespace tpsim
