// SPDX-License-Identifier: MIT
// One linear layer of a larger layer as a subject: the whole module is built, loaded and led astray
// as always, and only this part of it computes.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/verify/subject.hpp>

namespace tpsim {
namespace detail {

template <class B>
class PartModule final : public ModuleOn<B> {
 public:
  PartModule(std::unique_ptr<ModuleOn<B>> whole, std::size_t part)
      : whole_(std::move(whole)), part_(part) {}
  [[nodiscard]] std::vector<std::pair<std::string, typename B::Param*>> params() override {
    return whole_->params();
  }
  void load(const DiskTensor& tensor) override { whole_->load(tensor); }
  [[nodiscard]] typename B::Tensor forward(const typename B::Tensor& x) override {
    return whole_->forward_part(part_, x);
  }

 private:
  std::unique_ptr<ModuleOn<B>> whole_;
  std::size_t part_;
};

}  // namespace detail

/// Part `part` of `whole`, which has the parameters of that name ("gate_up_proj.") and whose
/// results are x w^T + b of the logical tensors with the prefixes. The caller sets input_width,
/// input_columns and outputs. `whole` must outlive it.
class LinearPart final : public SubjectOf<LinearPart> {
 public:
  LinearPart(const Subject& whole, std::size_t part, const std::string& param,
             std::vector<std::string> prefixes)
      : whole_(&whole), part_(part), prefixes_(std::move(prefixes)) {
    layer = param.substr(0, param.size() - 1);
    tp = whole.tp;
    tokens = whole.tokens;
    for (const DiskTensor& t : whole.tensors)
      if (t.param.starts_with(param)) tensors.push_back(t);
    for (const DeclaredParam& p : whole.params)
      if (p.name.starts_with(param)) params.push_back(p);
  }
  [[nodiscard]] std::unique_ptr<Communicator> between(Communicator& world) const override {
    return whole_->between(world);
  }
  template <class B>
  [[nodiscard]] std::unique_ptr<ModuleOn<B>> module(B& b, Communicator& comm) const {
    return std::make_unique<detail::PartModule<B>>(whole_->make(b, comm), part_);
  }
  template <class B>
  [[nodiscard]] std::vector<typename B::Tensor> meaning(B& b, const typename B::Tensor& x,
                                                        const FullParams<B>& t) const {
    std::vector<typename B::Tensor> out;
    for (const std::string& prefix : prefixes_) out.push_back(full_linear(b, x, t, prefix));
    return out;
  }

 private:
  const Subject* whole_;
  std::size_t part_;
  std::vector<std::string> prefixes_;
};

}  // namespace tpsim
