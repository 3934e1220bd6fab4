// SPDX-License-Identifier: MIT
#include "sim/command_line.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <boost/program_options.hpp>

#include "sim/options.hpp"
#include "sim/request.hpp"

namespace tpsim::cli {
namespace {

namespace po = boost::program_options;

po::options_description described() {
  po::options_description description;
  for (const Option& o : options()) {
    std::string name(o.name);
    if (name == "help") name += ",h";
    if (name == "quiet") name += ",q";
    if (o.argument.empty())
      description.add_options()(name.c_str(), po::bool_switch(), "");
    else if (o.argument.starts_with('['))
      description.add_options()(name.c_str(), po::value<std::string>()->implicit_value(""), "");
    else
      description.add_options()(name.c_str(), po::value<std::string>(), "");
  }
  // The engines' own name for --tp; Program_options has no aliases.
  description.add_options()("tensor-parallel-size", po::value<std::string>(), "");
  return description;
}

const Option* find_option(const std::string& name) {
  const std::string own = name == "tensor-parallel-size" ? "tp" : name;
  for (const Option& o : options())
    if (o.name == own) return &o;
  return nullptr;
}

// "--tp N: number of tensor-parallel ranks, 1 to 512"
std::string usage_of(const std::string& name) {
  const Option* o = find_option(name);
  return o == nullptr ? "tpsim --help lists all options"
                      : fmt::format("--{}{}{}: {}", o->name, o->argument.empty() ? "" : " ",
                                    o->argument, o->help);
}

[[noreturn]] void refuse_unknown(const std::vector<std::string>& arguments, std::string name) {
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  // Program_options reports "-tp" as "tp" too: show what was typed.
  std::string typed = "--" + name;
  for (const std::string& a : arguments)
    if (a.starts_with('-') && !a.starts_with("--") && a.find(name) == 1) typed = a;
  std::vector<std::string> names;
  for (const Option& o : options()) names.emplace_back(o.name);
  const std::string word = typed.substr(std::min(typed.find_first_not_of('-'), typed.size()));
  const std::string near = nearest(word, names);
  throw UsageError(
      fmt::format("unknown option '{}'", typed),
      near.empty() ? "tpsim --help lists all" : fmt::format("did you mean '--{}'?", near));
}

std::string bare(std::string name) {
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  return name;
}

}  // namespace

CommandLine split_command_line(const std::vector<std::string>& arguments) {
  const po::options_description description = described();
  CommandLine line;
  po::variables_map map;
  try {
    const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    const auto parsed = po::command_line_parser(arguments).options(description).style(style).run();
    for (const auto& option : parsed.options)
      if (option.position_key >= 0) line.words.push_back(option.original_tokens.front());
    po::store(parsed, map);
  } catch (const po::unknown_option& e) {
    refuse_unknown(arguments, e.get_option_name());
  } catch (const po::multiple_occurrences& e) {
    throw UsageError(fmt::format("option '{}' is given more than once", e.get_option_name()),
                     "give it once");
  } catch (const po::invalid_command_line_syntax& e) {
    const std::string name = bare(e.get_option_name());
    const Option* o = find_option(name);
    throw UsageError(
        fmt::format("option '--{}' {}", name,
                    o != nullptr && o->argument.empty() ? "takes no value" : "needs a value"),
        usage_of(name));
  } catch (const po::error& e) {
    throw UsageError(e.what(), "tpsim --help lists all options");
  }
  Given& given = line.options;
  for (const auto& [name, value] : map) {
    if (value.defaulted()) continue;
    if (const auto* text = boost::any_cast<std::string>(&value.value())) {
      if (text->empty() && name != "help")
        throw UsageError(fmt::format("option '--{}' is empty", name), usage_of(name));
      given[name] = *text;
    } else if (value.as<bool>()) {
      given[name] = "";
    }
  }
  if (const auto it = given.find("tensor-parallel-size"); it != given.end()) {
    if (given.count("tp") != 0)
      throw UsageError("option '--tp' is given more than once",
                       "--tensor-parallel-size is the same option");
    given["tp"] = it->second;
    given.erase(it);
  }
  return line;
}

}  // namespace tpsim::cli
