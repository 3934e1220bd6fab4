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
  [[nodiscard]] CheckResult integers(const Subject& s, const NumericOptions& o) const override {
    return on_device([&] { return read_integers_on<Cuda>(s, o); });
  }
  [[nodiscard]] std::vector<CheckResult> rounding(const Subject& s,
                                                  const NumericOptions& o) const override {
    return on_device([&] { return read_rounding_on<Cuda>(s, o); });
  }
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

void require_fault_runs(const std::string& fault, const std::string& backend) {
  if (fault == "bf16-sum" && backend == "cuda")
    throw UsageError("the fault bf16-sum rounds numbers in the CPU's memory",
                     "use --backend eigen for it");
}

std::string cuda_device() { return cuda::Device::shared().name(); }

std::string on_device_text(const std::string& backend) {
  return backend == "cuda" ? on_device([] { return " on " + cuda_device(); }) : std::string();
}

std::unique_ptr<NumericEngine> engine_of(const std::string& backend) {
  if (backend != "cuda") return nullptr;
  return std::make_unique<CudaEngine>();
}

}  // namespace cli
}  // namespace tpsim
