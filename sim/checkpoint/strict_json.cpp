// SPDX-License-Identifier: MIT
// JSON of small untrusted files: duplicate keys and deep nesting are errors.
#include "strict_json.hpp"

#include <unordered_set>
#include <vector>

#include "problems.hpp"

namespace tpsim::checkpoint_detail {

nlohmann::json parse_strict_json(std::string_view text, const std::string& file_name) {
  using json = nlohmann::json;
  constexpr int max_depth = 32;
  const std::string cannot = "cannot read " + shown(file_name);
  if (text.find('\0') != std::string_view::npos)
    throw LayoutError(cannot, {{"file", "it holds a zero byte, so it is not JSON"}});

  // nlohmann keeps the last of two equal keys in silence; this sees both.
  std::vector<std::unordered_set<std::string>> keys;  // of the objects that are open
  Problems problems;
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if (depth > max_depth)
      throw LayoutError(cannot,
                        {{"file", fmt::format("the JSON is nested deeper than {}", max_depth)}});
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) problems.add("names", shown(key) + " appears twice");
    }
    return true;
  };
  json parsed;
  try {
    parsed = json::parse(text.begin(), text.end(), watch);
  } catch (const json::exception& error) {
    std::string_view why = error.what();
    if (const auto end = why.find("] "); end != std::string_view::npos) why.remove_prefix(end + 2);
    problems.add("file", "it is not JSON: " + shown(why));
  }
  problems.throw_if_any(cannot);
  if (!parsed.is_object())
    throw LayoutError(
        cannot,
        {{"file", fmt::format("it holds {}; it must be a JSON object", parsed.type_name())}});
  return parsed;
}

}  // namespace tpsim::checkpoint_detail
