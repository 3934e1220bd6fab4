// SPDX-License-Identifier: MIT
#include "sim/shared_options.hpp"

#include <fmt/format.h>

#include <tpsim/verify/fault_list.hpp>

namespace tpsim::cli {

std::optional<DType> parse_dtype(const Given& given, const std::vector<DType>& known,
                                 const std::string& whose) {
  const auto it = given.find("dtype");
  if (it == given.end()) return std::nullopt;
  std::vector<std::string> names;
  std::string listed;
  for (const DType one : known) {
    names.emplace_back(name(one));
    listed += (names.size() == 1              ? ""
               : names.size() == known.size() ? " and "
                                              : ", ") +
              names.back();
  }
  require_choice("dtype", it->second, names, whose + " " + listed);
  for (const DType one : known)
    if (it->second == name(one)) return one;
  return std::nullopt;
}

std::optional<DType> parse_numeric_dtype(const Given& given) {
  if (const auto it = given.find("dtype"); it != given.end() && it->second == "f64")
    throw UsageError("the numeric reading does not run in f64",
                     "dtypes of the numeric reading are f32, bf16 and f16; its reference is f64 "
                     "already");
  return parse_dtype(given, {DType::f32, DType::bf16, DType::f16}, "dtypes are");
}

ReduceOrder parse_all_reduce(const Given& given) {
  const auto it = given.find("all-reduce");
  if (it == given.end()) return ReduceOrder::rank;
  require_choice("order of sums", it->second, {"rank", "ring", "f32"},
                 "orders are rank, ring and f32");
  return *reduce_order_named(it->second);
}

std::uint64_t parse_seed(const Given& given) {
  const auto it = given.find("seed");
  return it == given.end()
             ? 1
             : static_cast<std::uint64_t>(number("seed", it->second, 0, Index{1} << 53));
}

std::string parse_fault(const Given& given) {
  const auto it = given.find("fault");
  if (it == given.end()) return {};
  std::vector<std::string> names;
  for (const Fault& f : faults()) names.push_back(f.name);
  require_choice("fault", it->second, names, "'tpsim list faults' shows all");
  return it->second;
}

}  // namespace tpsim::cli
