// SPDX-License-Identifier: MIT
// Reads the JSON of a safetensors header event by event.
#include "header_sax.hpp"

#include <array>
#include <utility>

namespace tpsim::checkpoint_detail {
namespace {

constexpr std::array<std::pair<std::string_view, Index>, 22> dtypes{
    {{"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
     {"I8", 8},          {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
     {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
     {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
     {"I64", 64},        {"U64", 64}}};

// The format nests three deep (header, entry, shape); more than this is junk or an attack.
constexpr std::size_t max_depth = 8;
// torch's own limit on dimensions.
constexpr std::size_t max_rank = 64;

std::string list(const std::vector<Index>& dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

}  // namespace

std::optional<Index> dtype_bits(std::string_view dtype) {
  for (const auto& [known, bits] : dtypes)
    if (known == dtype) return bits;
  return std::nullopt;
}

std::string known_dtypes() {
  std::string all;
  for (const auto& [known, bits] : dtypes) all.append(all.empty() ? "" : ", ").append(known);
  return all;
}

void HeaderSax::problem(const char* rule, const std::string& message) {
  problems_->add(rule, message);
  good_ = false;
}

std::string HeaderSax::subject() const {
  switch (level()) {
    case Level::root:
      return "the header";
    case Level::metadata:
      return "__metadata__ " + shown(field_);
    case Level::top:
      return "tensor " + shown(entry_.name);
    default:
      return "tensor " + shown(entry_.name) + ": " + shown(field_);
  }
}

bool HeaderSax::open(bool object) {
  if (levels_.size() >= max_depth) {
    problem("header", fmt::format("the JSON is nested deeper than {} levels", max_depth));
    return false;
  }
  Level next = Level::ignored;
  const char* kind = object ? "an object" : "a list";
  if (level() == Level::root && object) {
    next = Level::top;
  } else if (level() == Level::top && object) {
    next = entry_.name == "__metadata__" ? Level::metadata : Level::entry;
    if (next == Level::entry) start_entry();
  } else if (level() == Level::entry && !object && field_ == "shape") {
    next = Level::shape;
  } else if (level() == Level::entry && !object && field_ == "data_offsets") {
    next = Level::offsets;
  } else {
    scalar(kind);
  }
  levels_.push_back(next);
  return true;
}

// A value that is wrong wherever it stands (strings and integers are tried first).
bool HeaderSax::scalar(const char* kind) {
  const std::string who = subject();
  switch (level()) {
    case Level::ignored:
      break;
    case Level::root:
      problem("header", who + " is " + kind + "; it must be an object");
      break;
    case Level::metadata:
      problem("metadata", who + " is " + kind + "; only strings are legal");
      break;
    case Level::top:
      problem("header", who + " is " + kind + "; it must be an object");
      break;
    case Level::shape:
      problem("shape", who + " holds " + kind + "; only integers are legal");
      break;
    case Level::offsets:
      problem("offsets", who + " holds " + kind + "; only integers are legal");
      break;
    case Level::entry:
      problem("header", who + " is " + kind + "; it must be " +
                            (field_ == "dtype" ? "a string" : "a list of integers"));
  }
  return true;
}

bool HeaderSax::integer(std::optional<Index> value, const std::string& text) {
  if (level() != Level::shape && level() != Level::offsets) return scalar("a number");
  const bool shape = level() == Level::shape;
  const char* rule = shape ? "shape" : "offsets";
  const char* what = shape ? "dimension" : "offset";
  std::vector<Index>& into = shape ? entry_.dims : offsets_;
  if (!value || *value < 0)
    problem(rule, fmt::format("tensor {}: {} {} is {}; legal: 0 to 2^63-1", shown(entry_.name),
                              what, shown(text), value ? "negative" : "no integer in range"));
  if (into.size() == (shape ? max_rank : 2)) {
    if (good_)
      problem(rule, fmt::format("tensor {}: {} has more than {} numbers", shown(entry_.name),
                                shown(field_), into.size()));
    good_ = false;
    return true;
  }
  into.push_back(value.value_or(0));
  return true;
}

bool HeaderSax::string(string_t& text) {
  if (level() == Level::metadata) {
    metadata[field_] = std::move(text);
  } else if (level() == Level::entry && field_ == "dtype") {
    if (!dtype_bits(text))
      problem("dtype", fmt::format("tensor {}: dtype {} is unknown; known: {}", shown(entry_.name),
                                   shown(text), known_dtypes()));
    entry_.dtype = std::move(text);
  } else {
    scalar("a string");
  }
  return true;
}

bool HeaderSax::key(string_t& text) {
  switch (level()) {
    case Level::top:
      if (!names_.insert(text).second)
        problem("names",
                (text == "__metadata__" ? "" : "tensor ") + shown(text) + " appears twice");
      entry_.name = std::move(text);
      break;
    case Level::metadata:
      if (metadata.contains(text))
        problem("metadata", "__metadata__ " + shown(text) + " appears twice");
      field_ = std::move(text);
      break;
    case Level::entry:
      field_ = std::move(text);
      if (!seen_.insert(field_).second) problem("names", subject() + " appears twice");
      if (field_ != "dtype" && field_ != "shape" && field_ != "data_offsets") {
        problem("header", subject() + " is no key of an entry; legal: dtype, shape, data_offsets");
      }
      break;
    default:
      break;
  }
  return true;
}

void HeaderSax::start_entry() {
  entry_ = {.name = entry_.name, .dtype = {}, .dims = {}};
  field_.clear();
  seen_.clear();
  offsets_.clear();
  good_ = true;
}

bool HeaderSax::end_object() {
  const Level closed = level();
  levels_.pop_back();
  if (closed == Level::entry) finish_entry();
  return true;
}

bool HeaderSax::end_array() {
  levels_.pop_back();
  return true;
}

void HeaderSax::finish_entry() {
  const std::string who = "tensor " + shown(entry_.name);
  for (const char* needed : {"dtype", "shape", "data_offsets"})
    if (!seen_.contains(needed)) problem("header", who + " has no " + shown(needed));
  if (!good_) return;
  if (offsets_.size() != 2)
    return problem("offsets",
                   fmt::format("{}: data_offsets {} must be two numbers", who, list(offsets_)));
  entry_.begin = offsets_[0];
  entry_.end = offsets_[1];
  if (entry_.begin > entry_.end)
    return problem("offsets",
                   fmt::format("{}: data_offsets {} are reversed; the first must not be after "
                               "the second",
                               who, list(offsets_)));
  finish_size();
  if (good_) entries.push_back(std::move(entry_)), entry_ = {};
}

// The byte length must be shape times dtype size. A zero dimension makes the tensor empty, but the
// others must still multiply without overflow.
void HeaderSax::finish_size() {
  const std::string who = "tensor " + shown(entry_.name);
  Index bits = *dtype_bits(entry_.dtype);
  bool empty = false;
  for (const Index dim : entry_.dims) {
    if (dim == 0)
      empty = true;
    else if (__builtin_mul_overflow(bits, dim, &bits))
      return problem("shape", fmt::format("{}: the size of shape {} of {} overflows 63 bits", who,
                                          list(entry_.dims), entry_.dtype));
  }
  if (empty) bits = 0;
  if (bits % 8 != 0)
    return problem("shape", fmt::format("{}: shape {} of {} does not fill whole bytes", who,
                                        list(entry_.dims), entry_.dtype));
  if (bits / 8 != entry_.end - entry_.begin)
    problem("shape", fmt::format("{}: shape {} of {} needs {} bytes, but data_offsets {} hold {}",
                                 who, list(entry_.dims), entry_.dtype, bits / 8, list(offsets_),
                                 entry_.end - entry_.begin));
}

bool HeaderSax::parse_error(std::size_t position, const std::string& /*token*/,
                            const nlohmann::json::exception& error) {
  std::string_view why = error.what();
  if (const auto end = why.find("] "); end != std::string_view::npos) why.remove_prefix(end + 2);
  problem("header", fmt::format("byte {} of the header is not JSON: {}", position, shown(why)));
  return false;
}

}  // namespace tpsim::checkpoint_detail
