// SPDX-License-Identifier: MIT
#include <tpsim/checkpoint/check_names.hpp>

#include <algorithm>
#include <map>
#include <set>

#include "nearest.hpp"
#include "problems.hpp"

namespace tpsim {
using namespace checkpoint_detail;

namespace {

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return c >= '0' && c <= '9'; });
}

bool matches(const std::string& pattern, const std::string& name) {
  const std::size_t at = pattern.find("{}");
  if (at == std::string::npos) return pattern == name;
  const std::string_view before(pattern.data(), at);
  const std::string_view after = std::string_view(pattern).substr(at + 2);
  return name.size() > before.size() + after.size() && name.starts_with(before) &&
         name.ends_with(after) &&
         is_number(std::string_view(name).substr(at, name.size() - before.size() - after.size()));
}

std::string dims_text(const std::vector<Index>& dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

std::vector<Index> dims_of(const Shape& shape) {
  return shape.rank() == 1 ? std::vector<Index>{shape.rows()}
                           : std::vector<Index>{shape.rows(), shape.cols()};
}

/// "layers.0.self_attn.qkv_proj.weight, part q"
std::string place(const ModelTensor& t, const PlanPart& part) {
  return t.param + (part.label.empty() ? "" : ", part " + part.label);
}

class NamesCheck {
 public:
  NamesCheck(const BoundModel& model, std::span<const SafetensorsEntry> held)
      : model_(model), held_(held) {}

  [[nodiscard]] CheckResult run() {
    result_.id = "names";
    result_.compared = static_cast<Index>(held_.size());
    for (const ModelTensor& t : model_.tensors) wanted_.emplace(t.name, &t);
    for (const SafetensorsEntry& entry : held_) look(entry);
    missing();
    for (const SafetensorsEntry* entry : extra_) add_extra(*entry);
    result_.result = !result_.findings.empty() ? Outcome::fail
                     : held_.empty()           ? Outcome::skip
                                               : Outcome::pass;
    result_.message = summary();
    return std::move(result_);
  }

 private:
  Finding& add(const std::string& tensor, const std::string& message) {
    Finding f;
    f.check = "names";
    f.tensor = tensor;
    f.message = message;
    result_.findings.push_back(std::move(f));
    return result_.findings.back();
  }

  void look(const SafetensorsEntry& entry) {
    const std::string name = shown(entry.name);
    const auto it = wanted_.find(entry.name);
    if (it == wanted_.end()) {
      if (std::any_of(model_.ignored.begin(), model_.ignored.end(),
                      [&](const std::string& pattern) { return matches(pattern, entry.name); }))
        ++ignored_;
      else
        extra_.push_back(&entry);
      return;
    }
    const ModelTensor& t = *it->second;
    if (!seen_.insert(entry.name).second) {
      add(entry.name, "tensor " + name + " is there twice");
      return;
    }
    if (t.optional)
      ++ignored_;
    else
      ++read_;
    if (entry.dims != dims_of(t.shape))
      add(entry.name, fmt::format("tensor {} is {}, wanted {}", name, dims_text(entry.dims),
                                  dims_text(dims_of(t.shape))));
    constexpr std::array<std::string_view, 4> weights{"F64", "F32", "F16", "BF16"};
    if (std::find(weights.begin(), weights.end(), entry.dtype) == weights.end())
      add(entry.name, fmt::format("tensor {} is of dtype {}; weights are F64, F32, F16 or BF16",
                                  name, shown(entry.dtype)));
  }

  void missing() {
    std::set<std::string> params;
    for (const ModelTensor& t : model_.tensors) {
      if (!t.optional) params.insert(t.param);
      if (t.optional || seen_.count(t.name) > 0) continue;
      missing_.push_back(t.name);
      std::string places;
      for (const PlanPart& part : t.bound->parts)
        places += (places.empty() ? "" : "; ") + place(t, part);
      add(t.name, fmt::format("tensor {} is missing: nothing writes {}", shown(t.name), places));
    }
    params_ = params.size();
  }

  void add_extra(const SafetensorsEntry& entry) {
    // A checkpoint of another architecture has thousands: the first ones get a hint.
    constexpr std::size_t hints = 16;
    const std::string near = hinted_++ < hints ? nearest(entry.name, missing_) : "";
    Finding& f =
        add(entry.name, fmt::format("tensor {} {} is in no rule of the plan: nothing reads it",
                                    shown(entry.name), dims_text(entry.dims)));
    if (!near.empty()) f.cause = "it may be " + shown(near) + ", which is missing";
  }

  [[nodiscard]] std::string summary() const {
    if (held_.empty()) return "there are no tensors";
    std::string out =
        fmt::format("{} of {} tensors read once, into {} parameters", read_, held_.size(), params_);
    if (ignored_ > 0) out += fmt::format("; {} with no meaning", ignored_);
    return out;
  }

  const BoundModel& model_;
  std::span<const SafetensorsEntry> held_;
  CheckResult result_;
  std::map<std::string, const ModelTensor*, std::less<>> wanted_;
  std::set<std::string, std::less<>> seen_;
  std::vector<const SafetensorsEntry*> extra_;
  std::vector<std::string> missing_;
  std::size_t read_ = 0, ignored_ = 0, params_ = 0, hinted_ = 0;
};

}  // namespace

CheckResult check_names(const BoundModel& model, std::span<const SafetensorsEntry> held) {
  return NamesCheck(model, held).run();
}

}  // namespace tpsim
