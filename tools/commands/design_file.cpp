// Reads and writes design.json.
#include "tools/commands/design_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "base/record_file.h"
#include "millrace/error.h"
#include "study/records/run_files.h"
#include "study/records/signature.h"
#include "tools/commands/study_data.h"
#include "tools/commands/sweep_plan.h"
#include "tools/launch/launch.h"
#include "tools/terminal/terminal.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kDesignFile = "design.json";

/// Returns the arguments as JSON, for the sweep's directory.
Json to_json(const SweepArguments& arguments) {
  Json json{{"recipe", arguments.recipe},
            {"cells", arguments.cells},
            {"design", arguments.design.value_or("grid")},
            {"repeats", arguments.repeats.value_or("1")},
            {"metric", metrics_of(arguments)}};
  if (arguments.command) {
    json["command"] = *arguments.command;
    json["shell"] = arguments.shell.value_or("sh");
    json["timeout_s"] = arguments.timeout_s.value_or(0);
    json["folder"] = folder_of(arguments);
    json["metrics"] = command_metrics(arguments);
  }
  if (arguments.study.empty()) return json;
  json["study"] = arguments.study;
  json["study_file"] = arguments.study_file;
  json["short"] = arguments.brief;
  json["data"] = arguments.data;
  return json;
}

/// Returns whether a value has the type that to_json() gives the key. A word that looks like an
/// option is none of a recipe's: a hint would hand it to the user's shell.
bool is_as_written(const std::string& key, const Json& value) {
  if (key == "short") return value.is_boolean();
  if (key == "timeout_s") return value.is_number();
  if (key != "recipe" && key != "cells" && key != "metrics") return value.is_string();
  return value.is_array() && std::all_of(value.begin(), value.end(), [&](const Json& word) {
           return word.is_string() &&
                  (key != "recipe" || !word.get_ref<const std::string&>().starts_with('-'));
         });
}

/// The arguments of a sweep as it has recorded them.
struct RecordedDesign {
  Json json;
  bool is_ours = false;  ///< signed by this user's millrace
};

/// Returns the arguments of the sweep at `path`; empty if there is none.
std::optional<RecordedDesign> design_at(const fs::path& path) {
  std::ifstream in = base::open_record(path / kDesignFile);
  if (!in) return {};
  const std::string text = base::read_record(in, path / kDesignFile);
  Json json = study::parse_json(text);
  const auto is_sound = [&](const char* key) {
    return json.contains(key) && is_as_written(key, json[key]);
  };
  bool sound = json.is_object();
  for (const char* key : {"recipe", "cells", "design", "repeats", "metric"})
    sound = sound && is_sound(key);
  if (sound && json.contains("study"))
    for (const char* key : {"study", "study_file", "short", "data"}) sound = sound && is_sound(key);
  if (sound && json.contains("command"))
    for (const char* key : {"command", "shell", "timeout_s", "folder", "metrics"})
      sound = sound && is_sound(key);
  for (const char* key : {"study_file", "short", "data", "ops"})
    sound = sound && (!json.contains(key) || is_sound(key));
  if (!sound)
    throw DataError(fmt::format("{} is damaged", (path / kDesignFile).string()),
                    "start the sweep without --resume: its directory is kept under another name");
  return RecordedDesign{std::move(json), study::is_signed(path, kDesignFile, text)};
}

/// Returns the newest sweep of runs/ with the same question, or the newest of all if none is given.
fs::path newest_sweep(const SweepArguments& arguments) {
  fs::path newest;
  fs::file_time_type when;
  std::error_code error;
  const Json wanted = to_json(arguments);
  for (const auto& entry : fs::directory_iterator("runs", error)) {
    const fs::path& path = entry.path();
    if (!path.filename().string().starts_with("sweep-")) continue;
    const auto design = design_at(path);
    if (!design) continue;
    const auto same = [&](const char* key) {
      return design->json.value(key, Json()) == wanted.value(key, Json());
    };
    const bool all = same("recipe") && same("cells") && same("design") && same("study") &&
                     same("short") && same("command") && same("shell");
    const auto written = fs::last_write_time(path / kDesignFile, error);
    if ((arguments.says_what() && !all) || (!newest.empty() && written < when)) continue;
    newest = path;
    when = written;
  }
  return newest;
}

/// Returns the words that chose what to do with the sweep at `path`.
std::string deed_of(const SweepArguments& arguments, const fs::path& path) {
  const std::string run = " --run " + shell_word(path.string());
  if (arguments.block) return run + " --block " + *arguments.block;
  if (arguments.collect) return run + " --collect";
  if (arguments.on) return run + " --on " + *arguments.on;
  if (!arguments.plan) return " --resume" + run;
  return run + " --plan" + (arguments.repeats ? " --repeats " + *arguments.repeats : "");
}

/// Returns the folder in which the relative paths of a recorded sweep begin.
std::string folder_of(const Json& design, const fs::path& path) {
  if (design.contains("command")) return design.at("folder");
  return is_planned(path) ? read_plan(path).folder : fs::current_path().string();
}

/// Returns the command that repeats every word of a recorded sweep.
std::string command_of(const Json& design, const SweepArguments& arguments, const fs::path& path) {
  const std::string folder = folder_of(design, path);
  const bool here = folder == fs::current_path().string();
  std::string command = here ? "" : fmt::format("cd {} && ", shell_word(folder));
  command += "millrace sweep" + deed_of(arguments, here ? path : fs::absolute(path));
  const auto add = [&command](const char* option, const std::string& value) {
    command += fmt::format(" {} {}", option, shell_word(value));
  };
  if (design.contains("study")) command += " " + shell_word(design.at("study_file"));
  for (const std::string word : design.at("recipe")) command += " " + shell_word(word);
  for (const std::string cell : design.at("cells")) add("--cell", cell);
  if (design.at("design") == "paired") add("--design", "paired");
  if (design.value("short", false)) command += " --short";
  if (!design.contains("command")) {
    if (design.at("metric") != "images_per_s") add("--metric", design.at("metric"));
    return command;
  }
  add("--command", design.at("command"));
  if (design.at("shell") != "sh") add("--shell", design.at("shell"));
  if (design.at("timeout_s") != 0)
    add("--timeout", fmt::format("{:g}", design.at("timeout_s").get<double>()));
  if (design.at("metrics") != Json{"wall"})
    for (const std::string metric : design.at("metrics")) add("--metric", metric);
  return command;
}

/// Throws UsageError unless the command line says all that the sweep at `path` is to do: its
/// record may be a stranger's.
void require_words(const Json& design, const SweepArguments& arguments, const fs::path& path) {
  if (arguments.says_what() && (arguments.command || !design.contains("command"))) return;
  throw UsageError(fmt::format("{} is not signed with your key: what it says is not run",
                               (path / kDesignFile).string()),
                   "if you trust it, repeat it: " + command_of(design, arguments, path));
}

/// Takes what the arguments leave open from a recorded sweep of a command.
void take_command(const Json& design, SweepArguments& arguments) {
  if (!arguments.shell) arguments.shell = design.at("shell");
  if (!arguments.timeout_s) arguments.timeout_s = design.at("timeout_s");
  arguments.folder = design.at("folder");
  if (arguments.metrics.empty()) arguments.metrics = design.at("metrics");
}

/// Takes the question of a recorded sweep, which is this user's own.
void take_question(const Json& design, SweepArguments& arguments) {
  auto words = design.at("recipe").get<std::vector<std::string>>();
  if (!arguments.recipe.empty()) std::erase_if(words, names_plugins);
  words.insert(words.end(), arguments.recipe.begin(), arguments.recipe.end());
  arguments.recipe = std::move(words);
  arguments.cells = design.at("cells").get<std::vector<std::string>>();
  arguments.study = design.value("study", "");
  arguments.study_file = design.value("study_file", "");
  arguments.brief = design.value("short", false);
  if (design.contains("command")) arguments.command = design.at("command");
  if (!arguments.design) arguments.design = design.at("design");
}

}  // namespace

fs::path find_resumed(SweepArguments& arguments) {
  if (!arguments.resume) return {};
  fs::path path = arguments.run.empty() ? newest_sweep(arguments) : fs::path(arguments.run);
  const auto recorded = path.empty() ? std::nullopt : design_at(path);
  if (!recorded && !arguments.says_what())
    throw UsageError(path.empty()
                         ? "--resume: no sweep in runs/"
                         : fmt::format("--resume: {} is not a sweep's directory", path.string()),
                     "name its directory with --run DIR, or give a recipe and keys to sweep");
  if (!recorded) {
    say("nothing to resume: starting the sweep");
    return {};
  }
  const Json& design = recorded->json;
  if (!recorded->is_ours) {
    require_words(design, arguments, path);
    if (!arguments.study.empty()) arguments.data = study_data(arguments, path).override_text;
  } else {
    if (!arguments.says_what()) take_question(design, arguments);
    arguments.data = design.value("data", "");
    if (arguments.command && design.contains("command")) take_command(design, arguments);
    if (arguments.metrics.empty()) arguments.metrics = {design.at("metric")};
  }
  if (!arguments.command && (arguments.shell || arguments.timeout_s))
    throw UsageError("--shell and --timeout belong to a sweep of --command", "leave them out");
  if (!arguments.repeats) arguments.repeats = design.at("repeats");
  return path;
}

std::string ops_at(const fs::path& path) {
  const auto design = design_at(path);
  return design ? design->json.value("ops", "torch") : "torch";
}

void write_design(const fs::path& path, const SweepArguments& arguments, const std::string& ops) {
  Json words = to_json(arguments);
  words["ops"] = ops;
  study::write_signed(path, kDesignFile, study::to_text(words, 2) + "\n");
}

}  // namespace millrace::tools
