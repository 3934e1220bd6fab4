// SPDX-License-Identifier: MIT
// What a command line asks for, checked.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <tpsim/verify/layer_spec.hpp>
#include <tpsim/verify/report.hpp>

namespace tpsim::cli {

/// A command line that cannot be asked: printed as `error:` and `hint:`, exit status 2.
class UsageError : public std::runtime_error {
 public:
  explicit UsageError(const std::string& message, std::string hint = {})
      : std::runtime_error(message), hint_(std::move(hint)) {}
  [[nodiscard]] const std::string& hint() const { return hint_; }

 private:
  std::string hint_;
};

enum class Color { automatic, always, never };

struct Output {
  bool json = false, quiet = false, verbose = false;
  Color color = Color::automatic;
  std::string html, junit;  ///< files to write; empty for none
};

/// The layer check: one layer, or all of them in turn.
struct LayerRequest {
  std::vector<LayerSpec> specs;      ///< one for each layer, with sizes and tensors filled in
  bool all = false;                  ///< --layer all
  std::string model = "llama-3-8b";  ///< where the sizes came from
  std::string fault;
  bool toy = false;
  std::string weights, module;  ///< --weights and --module
  bool statics = true, exact = true, numeric = true;
  bool readings_chosen = false;  ///< --reading was given
  DType dtype = DType::f32;
  std::uint64_t seed = 1;
  std::string backend = "eigen", comm = "virtual";
  Output output;
};

struct Request {
  enum class Kind { help, version, layer, explain, list } kind = Kind::help;
  bool short_help = false;  ///< no arguments at all
  std::string help_group;   ///< --help=GROUP
  std::string topic;        ///< explain CHECK, list WHAT
  LayerRequest layer;
  Output output;
};

/// @throws UsageError, LayoutError
[[nodiscard]] Request parse_command_line(const std::vector<std::string>& arguments);

/// Was `--json` given? Looked at before everything is parsed, so that errors are JSON too.
[[nodiscard]] bool wants_json(const std::vector<std::string>& arguments);

}  // namespace tpsim::cli
