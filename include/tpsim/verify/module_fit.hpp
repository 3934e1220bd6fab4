// SPDX-License-Identifier: MIT
// Whether a user's module and its plan speak of the same parameters, tensors and results.
#pragma once

#include <set>
#include <stdexcept>

#include <tpsim/comm/virtual_ranks.hpp>
#include <tpsim/verify/module_concepts.hpp>
#include <tpsim/verify/run_ranks.hpp>

namespace tpsim::detail {

/// Builds and loads the module once, without numbers. What a rank does wrong is for verify() to
/// find; here, that the module and the plan speak of the same parameters, tensors and results.
template <class Rank>
class FitCheck {
 public:
  explicit FitCheck(const Subject& subject) : subject_(subject) {}

  template <class Shape>
  void require_fit(const Shape& shape) {
    std::set<std::string> lacking, unknown, has;
    std::set<std::string> left;
    for (const DiskTensor& t : subject_.tensors) left.insert(t.stored->name);
    bool built = true;
    try {
      VirtualRanks world{subject_.tp};
      world.run([&](Communicator& comm) {
        try {
          SymbolicBackend b(context_, comm.rank());
          Rank rank(b, comm, shape);
          std::set<std::string> here;
          for (const auto& [name, param] : Params<SymbolicBackend>(rank.params())) {
            here.insert(name);
            if (!declared(name)) unknown.insert(name);
          }
          for (const DeclaredParam& p : subject_.params)
            if (here.count(p.name) == 0) lacking.insert(p.name);
          has.insert(here.begin(), here.end());
          for (const DiskTensor& t : subject_.tensors)
            if (takes(rank, t)) left.erase(t.stored->name);
        } catch (const LayoutError&) {
          built = false;  // a layer that will not be built is a finding
        }
      });
    } catch (const CollectiveMismatch&) {
      built = false;
    }
    if (built) {
      for (const std::string& name : lacking)
        broken("params() has no " + name + ", which " + sources(name) + " in the plan");
      for (const std::string& name : unknown)
        broken("no tensor of the plan fills " + name + " of params()");
      for (const std::string& name : left) broken("load() takes " + name + " on no rank");
    }
    results(shape);
    if (broken_.empty()) return;
    std::string known;
    for (const std::string& name : has) known += (known.empty() ? "" : ", ") + name;
    throw LayoutError("the module does not fit its plan", std::move(broken_),
                      known.empty() ? "" : "params() has " + known);
  }

 private:
  static bool takes(Rank& rank, const DiskTensor& t) {
    try {
      return load_into_rank(rank, t);
    } catch (const LayoutError&) {
      return true;  // it knows the tensor; that it refuses it is a finding
    }
  }
  void broken(const std::string& message) { broken_.push_back({"names", message}); }
  [[nodiscard]] bool declared(const std::string& name) const {
    for (const DeclaredParam& p : subject_.params)
      if (p.name == name) return true;
    return false;
  }
  [[nodiscard]] std::string sources(const std::string& param) const {
    std::string out;
    int count = 0;
    for (const DiskTensor& t : subject_.tensors)
      if (t.param == param) out += (count++ == 0 ? "" : ", ") + t.stored->name;
    return out + (count == 1 ? " fills" : " fill");
  }

  /// full() reads tensors of the plan and gives the plan's outputs.
  template <class Shape>
  void results(const Shape& shape) {
    try {
      SymbolicBackend b(context_, -1);
      const SymbolicTensor x = b.input("x", subject_.tokens, subject_.input_width);
      const std::vector<SymbolicTensor> full =
          full_results<Rank>(b, x, full_params(b, subject_.tensors), shape);
      if (full.size() != subject_.outputs.size())
        return broken("full() has " + std::to_string(full.size()) + " results, the plan " +
                      std::to_string(subject_.outputs.size()) + " outputs");
      for (std::size_t k = 0; k < full.size(); ++k) {
        Index end = 0;  // the ranks together reach every column of an output
        for (const Runs& columns : subject_.outputs[k].columns)
          for (const Run& run : columns) end = std::max(end, run.last() + 1);
        if (const Index width = b.shape(full[k]).cols(); width != end)
          broken("result " + std::to_string(k) + " of full() has " + std::to_string(width) +
                 " columns, the plan's output " + std::to_string(end));
      }
    } catch (const LayoutError& e) {
      for (const Violation& v : e.violations()) broken("full(): " + v.message);
      if (e.violations().empty()) broken("full(): " + e.subject());
    } catch (const std::out_of_range&) {
      broken("full() reads a tensor that the plan does not have");
    }
  }

  const Subject& subject_;
  SymbolicContext context_;
  std::vector<Violation> broken_;
};

/// @throws LayoutError (names) with every way in which the module and its plan differ
template <class Rank, class Shape>
void require_fit(const Subject& subject, const Shape& shape) {
  FitCheck<Rank>(subject).require_fit(shape);
}

}  // namespace tpsim::detail
