// SPDX-License-Identifier: MIT
// What a command line asks for, checked.
#pragma once

#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <tpsim/backend/eigen/reduce_order.hpp>
#include <tpsim/comm/rank_world.hpp>
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

/// Where the ranks live.
struct RankChoice {
  std::string comm = "virtual";  ///< --comm
  RankWorld* world = nullptr;    ///< null: all of them in this process
  /// Does this process tell what came out?
  [[nodiscard]] bool reports() const { return world == nullptr || world->is_root(); }
};

enum class Color { automatic, always, never };

/// Which readings run.
struct Readings {
  bool statics = true, exact = true, numeric = true;
  bool readings_chosen = false;  ///< --reading was given
};

struct Output {
  bool json = false, quiet = false, verbose = false;
  Color color = Color::automatic;
  std::string html, junit;  ///< files to write; empty for none
};

/// The layer check: one layer, or all of them in turn.
struct LayerRequest : Readings, RankChoice {
  std::vector<LayerSpec> specs;      ///< one for each layer, with sizes and tensors filled in
  bool all = false;                  ///< --layer all
  std::string model = "llama-3-8b";  ///< where the sizes came from
  std::string fault;
  bool toy = false;
  std::string weights, module;  ///< --weights and --module
  std::string planned;          ///< "row" or "column": what the plan makes of the module
  DType dtype = DType::f32;
  ReduceOrder all_reduce = ReduceOrder::rank;
  std::uint64_t seed = 1;
  std::string backend = "eigen";
  bool tf32 = false;  ///< of the device's f32 products
  Output output;
};

/// `tpsim plan MODEL`
struct PlanRequest {
  std::string model;
  std::string rules = "vllm";
  std::string plan_file;  ///< empty: the built-in plan of the model's type
  std::vector<int> tp;
  bool tp_chosen = false;                            ///< --tp was given
  int ep = 0;                                        ///< expert parallelism; 0: none
  Index tokens = 1024;                               ///< of the prompt whose time is estimated
  Index bandwidth = 3350, link = 450, latency = 10;  ///< GB/s, GB/s and us: DeviceFigures
  std::optional<Index> flops;                        ///< TFLOP/s; default_flops of the dtype
  Output output;
};

/// `tpsim run MODEL`
struct RunRequest : RankChoice {
  std::string model;      ///< folder with config.json and safetensors files
  std::string plan_file;  ///< empty: the built-in plan of the model's type
  int tp = 1;
  std::vector<Index> tokens;  ///< the prompt; empty: drawn from `seed`
  Index generate = 0;
  DType dtype = DType::f32;
  ReduceOrder all_reduce = ReduceOrder::rank;
  std::uint64_t seed = 1;
  std::string backend = "eigen";
  bool tf32 = false;  ///< of the device's f32 products
  Output output;
};

/// `tpsim synth MODEL`
struct SynthRequest {
  std::string model, out;
  std::string plan_file;               ///< empty: the built-in plan of the model's type
  std::map<std::string, Index> sizes;  ///< by option: "layers", "kv-heads"
  std::optional<DType> dtype;          ///< nothing: the config's
  std::uint64_t seed = 1;
  Index max_shard_size = 5'000'000'000;  ///< bytes of tensors in one file
  bool force = false;
  Output output;
};

/// `tpsim check MODEL`
struct CheckRequest : Readings, RankChoice {
  std::string model;
  std::string plan_file;  ///< empty: the built-in plan of the model's type
  std::string fault;
  std::vector<int> tp;
  bool all_tp = false;         ///< --tp all: `tp` has those that are not legal, too
  bool full = false;           ///< the exact reading at full size, too
  std::optional<DType> dtype;  ///< of the numeric reading; the checkpoint's when not given
  ReduceOrder all_reduce = ReduceOrder::rank;
  std::uint64_t seed = 1;
  std::string backend = "eigen";  ///< of the numeric reading
  bool tf32 = false;              ///< of the device's f32 products
  Output output;
};

struct Request {
  enum class Kind {
    help,
    version,
    layer,
    explain,
    list,
    plan,
    check,
    run,
    synth
  } kind = Kind::help;
  bool short_help = false;  ///< no arguments at all
  std::string help_group;   ///< --help=GROUP
  std::string topic;        ///< explain CHECK, list WHAT
  LayerRequest layer;
  PlanRequest plan;
  CheckRequest check;
  RunRequest run;
  SynthRequest synth;
  Output output;
};

inline constexpr Index largest_size = Index{1} << 24;  ///< of one dimension

/// Reads a whole decimal number in [least, most]. @throws UsageError naming --option
[[nodiscard]] Index number(const std::string& option, const std::string& text, Index least,
                           Index most);

/// "static,exact". @throws UsageError
[[nodiscard]] Readings parse_readings(const std::string& text);

/// "1,2,4": each tp once, from 1 to 512. @throws UsageError
[[nodiscard]] std::vector<int> parse_tp_list(const std::string& text);

/// @throws UsageError "unknown WHAT 'value'", with a near name of `known` and `more` as its hint
void require_choice(const std::string& what, const std::string& value,
                    const std::vector<std::string>& known, const std::string& more);

/// @param world  the processes of --comm mpi or nccl; null where all ranks live in this one
/// @throws UsageError, LayoutError
[[nodiscard]] Request parse_command_line(const std::vector<std::string>& arguments,
                                         RankWorld* world = nullptr);

/// Was `--json` given? Looked at before everything is parsed, so that errors are JSON too.
[[nodiscard]] bool wants_json(const std::vector<std::string>& arguments);

}  // namespace tpsim::cli
