// SPDX-License-Identifier: MIT
// Layers that break a law: the listed faults as candidates, and faults that exist for tests alone.
#pragma once

#include <bit>
#include <functional>

#include <properties/law.hpp>
#include <properties/laws/schedule.hpp>
#include <properties/property.hpp>
#include <sim/subjects.hpp>
#include <tpsim/verify/faults.hpp>

namespace tpsim::test {

namespace laws = tpsim::properties;

/// Fixed, so that a failure to reproduce in RC_PARAMS belongs to other tests.
inline laws::Settings fixed_settings() {
  laws::Settings settings;
  settings.testParams.seed = 1;
  return settings;
}

inline laws::Candidate faulty(const std::string& layer, const std::string& fault) {
  laws::Candidate candidate;
  candidate.layer = layer;
  candidate.fault = fault;
  candidate.make = [fault](const LayerSpec& s) {
    // A loader that is wrong for fused tensors is right for separate ones.
    return fault == "fused-cut-as-one" && s.disk.empty() ? make_subject(s)
                                                         : make_faulty_subject(s, fault);
  };
  if (fault == "bias-on-every-rank")
    candidate.legal = [layer] {
      return rc::gen::map(laws::legal_cases(layer), [](laws::Case c) {
        c.spec.bias = c.spec.reduce_results = true;  // without them there is no fault
        c.spec.skip_bias_add = false;
        return c;
      });
    };
  return candidate;
}

// Faults that exist here alone, for laws that no listed fault breaks. ---------------------------

/// `variation` is made anew for each subject: some count who came before.
inline laws::Candidate varied(const std::string& layer, std::function<Variation()> variation) {
  laws::Candidate candidate;
  candidate.layer = layer;
  candidate.make = [variation](const LayerSpec& s) -> std::unique_ptr<Subject> {
    require_legal(s);
    return std::make_unique<LinearSubject<>>(s, variation());
  };
  return candidate;
}

/// The loader takes the part's name from how many tensors came before.
inline Variation named_by_arrival() {
  Variation variation;
  variation.before_load = [arrived = std::make_shared<std::size_t>(0)](const DiskTensor& t,
                                                                       const Subject& subject) {
    DiskTensor other = t;
    const DiskTensor& expected = subject.tensors[(*arrived)++ % subject.tensors.size()];
    if (expected.stored->shape == t.stored->shape) other.layout = expected.layout;
    return std::optional(other);
  };
  return variation;
}

/// A rank is told its tp_rank by who came first.
class NumberedByArrival final : public detail::PassOn {
 public:
  NumberedByArrival(Communicator& world, int rank) : PassOn(world), rank_(rank) {}
  [[nodiscard]] int rank() const override { return rank_; }

 private:
  int rank_;
};
inline Variation ranked_by_arrival() {
  Variation variation;
  variation.between = [arrived = std::make_shared<int>(0)](Communicator& world) {
    return std::make_unique<NumberedByArrival>(world, (*arrived)++ % world.size());
  };
  return variation;
}

/// The sum is left out when there are two threads.
inline Variation sums_by_threads() {
  Variation variation;
  variation.between = [](Communicator& world) {
#ifdef _OPENMP
    const bool two = omp_get_max_threads() == 2;
#else
    const bool two = false;
#endif
    return std::make_unique<detail::RepeatedAllReduce>(world, two ? 0 : 1);
  };
  return variation;
}

/// Numbers lose all but 8 bits: right in the field, on small integers and in bf16.
template <class B>
struct RoughColumn : ColumnParallelLinear<B> {
  using Base = ColumnParallelLinear<B>;
  using Base::Base;
  typename Base::Tensor forward(const typename Base::Tensor& x) {
    typename Base::Tensor y = Base::forward(x);
    if constexpr (std::is_same_v<B, Subject::Numeric>)
      for (Index i = 0; i < y.value.size(); ++i)
        y.value.data()[i] =
            std::bit_cast<float>(std::bit_cast<std::uint32_t>(y.value.data()[i]) & 0xffff0000U);
    return y;
  }
};
struct RoughLayers : RealLayers {
  template <class B>
  using Column = RoughColumn<B>;
};

/// Refuses with what `told` makes of the broken rules; builds nothing.
inline laws::Candidate refusing(const std::string& layer,
                                std::vector<Violation> (*told)(std::vector<Violation>)) {
  laws::Candidate candidate;
  candidate.layer = layer;
  candidate.make = [told](const LayerSpec& s) -> std::unique_ptr<Subject> {
    if (std::vector<Violation> some = told(violations(s)); !some.empty())
      throw LayoutError("refused", std::move(some));
    return nullptr;
  };
  return candidate;
}

inline laws::Candidate rough() {
  laws::Candidate candidate;
  candidate.layer = "column";
  candidate.make = [](const LayerSpec& s) -> std::unique_ptr<Subject> {
    require_legal(s);
    return std::make_unique<LinearSubject<RoughLayers>>(s);
  };
  return candidate;
}

}  // namespace tpsim::test
