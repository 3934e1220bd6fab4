// SPDX-License-Identifier: MIT
#include "sim/request.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include <tpsim/core/text.hpp>

#include "sim/check_command.hpp"
#include "sim/command_line.hpp"
#include "sim/layer_request.hpp"
#include "sim/options.hpp"
#include "sim/plan_command.hpp"
#include "sim/run_command.hpp"
#include "sim/synth_command.hpp"

namespace tpsim::cli {

Index number(const std::string& option, const std::string& text, Index least, Index most) {
  Index value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::invalid_argument || end != text.data() + text.size() || text.empty())
    throw UsageError(fmt::format("--{} '{}' is not a whole number", option, text.substr(0, 40)),
                     fmt::format("--{} can be {} to {}", option, least, most));
  if (error != std::errc() || value < least || value > most)
    throw UsageError(fmt::format("--{} {} is out of range", option, text.substr(0, 40)),
                     fmt::format("--{} can be {} to {}", option, least, most));
  return value;
}

Readings parse_readings(const std::string& text) {
  Readings r{false, false, false, true};
  for (const std::string& word : split(text, ",")) {
    require_choice("reading", word, {"static", "exact", "numeric"},
                   "readings are static, exact and numeric");
    (word == "static" ? r.statics : word == "exact" ? r.exact : r.numeric) = true;
  }
  return r;
}

std::vector<int> parse_tp_list(const std::string& text) {
  std::vector<int> list;
  for (const std::string& word : split(text, ",")) {
    const int tp = static_cast<int>(number("tp", word, 1, 512));
    if (std::find(list.begin(), list.end(), tp) != list.end())
      throw UsageError(fmt::format("--tp has {} more than once", tp), "give each tp once");
    list.push_back(tp);
  }
  return list;
}

void require_choice(const std::string& what, const std::string& value,
                    const std::vector<std::string>& known, const std::string& more) {
  if (std::find(known.begin(), known.end(), value) != known.end()) return;
  const std::string near = nearest(value, known);
  throw UsageError(fmt::format("unknown {} '{}'", what, value.substr(0, 60)),
                   near.empty() ? more : fmt::format("did you mean '{}'? {}", near, more));
}

namespace {

Output parse_output(const Given& given) {
  Output o;
  o.json = given.count("json") != 0;
  o.quiet = given.count("quiet") != 0;
  o.verbose = given.count("verbose") != 0;
  const auto file = [&](const char* name) {
    const auto it = given.find(name);
    return it == given.end() ? std::string() : it->second;
  };
  o.html = file("html");
  o.junit = file("junit");
  if (const auto it = given.find("color"); it != given.end()) {
    require_choice("color", it->second, {"auto", "always", "never"},
                   "color is auto, always or never");
    o.color = it->second == "always"  ? Color::always
              : it->second == "never" ? Color::never
                                      : Color::automatic;
  }
  return o;
}

// The commands have one word each.
void require_command(const std::vector<std::string>& words) {
  const std::vector<std::string> commands{"check", "explain", "list", "plan", "run", "synth"};
  const bool known = std::find(commands.begin(), commands.end(), words[0]) != commands.end();
  if (known && words.size() <= 2) return;
  const std::string stray = words[known ? 2 : 0].substr(0, 60);
  const std::string near = known ? "" : nearest(stray, commands);
  if (known)
    throw UsageError(fmt::format("'{}' is one word too many", stray),
                     fmt::format("'tpsim {}' takes one word", words[0]));
  throw UsageError(
      fmt::format("'{}' is no option and no command", stray),
      near.empty()
          ? "the commands are check, plan, run, synth, explain and list; a layer is checked "
            "by tpsim --tp 4 --layer qkv"
          : fmt::format("did you mean 'tpsim {}'?", near));
}

}  // namespace

bool wants_json(const std::vector<std::string>& arguments) {
  return std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
}

Request parse_command_line(const std::vector<std::string>& arguments, RankWorld* world) {
  Request request;
  if (arguments.empty()) {
    request.short_help = true;
    return request;
  }
  const auto [given, words] = split_command_line(arguments);
  request.output = parse_output(given);
  if (!words.empty()) {
    require_command(words);
    if (words[0] == "plan") {
      request.kind = Request::Kind::plan;
      request.plan = parse_plan(words.size() > 1 ? words[1] : "", given);
      request.plan.output = request.output;
      return request;
    }
    if (words[0] == "synth") {
      request.kind = Request::Kind::synth;
      request.synth = parse_synth(words.size() > 1 ? words[1] : "", given);
      request.synth.output = request.output;
      return request;
    }
    if (words[0] == "check") {
      request.kind = Request::Kind::check;
      request.check = parse_check(words.size() > 1 ? words[1] : "", given, world);
      request.check.output = request.output;
      return request;
    }
    if (words[0] == "run") {
      request.kind = Request::Kind::run;
      request.run = parse_run(words.size() > 1 ? words[1] : "", given, world);
      request.run.output = request.output;
      return request;
    }
    for (const auto& [name, value] : given)
      if (name != "json" && name != "color" && name != "quiet" && name != "verbose")
        throw UsageError(fmt::format("--{} is no option of '{}'", name, words[0]),
                         fmt::format("'{}' takes --json", words[0]));
    request.topic = words.size() > 1 ? words[1] : "";
    request.kind = words[0] == "list" ? Request::Kind::list : Request::Kind::explain;
    return request;
  }
  if (given.count("version") != 0) {
    request.kind = Request::Kind::version;
  } else if (given.count("help") != 0) {
    request.help_group = given.at("help");
    if (!request.help_group.empty())
      require_choice("option group", request.help_group, option_groups(),
                     fmt::format("groups are {}", fmt::join(option_groups(), ", ")));
  } else {
    request.kind = Request::Kind::layer;
    request.layer = parse_layer(given, world);
    request.layer.output = request.output;
  }
  return request;
}

}  // namespace tpsim::cli
