// Reads, completes and records a sweep's arguments, and finds its data set.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/record_file.h"
#include "millrace/error.h"
#include "recipe/recipe_file.h"
#include "strategies/trainer/train_choices.h"
#include "study/analysis/statistics.h"
#include "study/records/run_directory.h"
#include "study/records/run_files.h"
#include "study/records/signature.h"
#include "study/sweep/design.h"
#include "tools/commands/sweep.h"
#include "tools/commands/sweep_plan.h"
#include "tools/launch/launch.h"
#include "tools/terminal/terminal.h"
#include "tools/training/setup.h"

namespace millrace::tools {

// Recognises keys with several values.

namespace {

/// Returns whether a word is key=a,b,c. Throws UsageError for an empty value.
bool has_several_values(const std::string& word) {
  return word.find(',') != std::string::npos && recipe::is_override(word) &&
         word.find("+=") == std::string::npos && study::parse_axis(word).values.size() > 1;
}

}  // namespace

Recipe load_single_recipe(const std::vector<std::string>& words) {
  try {
    return load_recipe(words);
  } catch (const UsageError& error) {
    for (const std::string& word : words) {
      // The error may be about another word.
      const auto key = word.substr(0, word.find('='));
      if (std::string_view(error.what()).find(key) == std::string_view::npos ||
          !has_several_values(word))
        continue;
      std::string command = "millrace sweep";
      for (const std::string& one : words) command += " " + shell_word(one);
      throw UsageError(fmt::format("{}: one run takes one value", word),
                       fmt::format("for a run of each: {}", command));
    }
    throw;
  }
}

namespace {

namespace fs = std::filesystem;

/// Returns where the study's recipe expects its data.
std::string usual_path(const study::Study& study) {
  std::string recipe = study.recipe;
  for (const study::StudyRow& row : study.rows)
    if (recipe.empty() && !row.keys.empty() && row.keys[0].find('=') == std::string::npos)
      recipe = row.keys[0];
  return recipe.empty() ? "" : load_recipe({recipe}).text("data.path");
}

}  // namespace

StudyData study_data(const SweepArguments& arguments, const fs::path& sweep) {
  const study::Study study = study::parse_study(arguments.study, arguments.study_file);
  const auto sets_path = [](const std::string& word) { return word.starts_with("data.path="); };
  if (std::any_of(arguments.recipe.begin(), arguments.recipe.end(), sets_path)) return {};
  std::error_code error;
  const char* const real = std::getenv("MILLRACE_DATA");
  if (real != nullptr && !study.real_data.empty()) {
    const fs::path folder = fs::path(real) / study.real_data;
    if (fs::is_directory(folder, error))
      return {"data.path=" + folder.string(), {}, fmt::format("data: {}", folder.string())};
  }
  const std::string usual = usual_path(study);
  if (study.made_data.empty()) return {};
  if (!arguments.brief && !usual.empty() && fs::exists(usual, error))
    return {"", {}, fmt::format("data: {}", usual)};
  const fs::path folder = fs::absolute(sweep) / "data";
  StudyData data{"data.path=" + folder.string(),
                 {"data", "make", study.made_data, folder.string()},
                 fmt::format("data: generated {}", study.made_data)};
  if (arguments.brief && !study.brief_data.empty()) {
    data.make.insert(data.make.end(), study.brief_data.begin(), study.brief_data.end());
    data.note += fmt::format(" ({})", fmt::join(study.brief_data, " "));
  }
  data.note += "; MILLRACE_DATA or data.path=DIR names real data";
  return data;
}

void make_data(const StudyData& data, const fs::path& sweep) {
  std::error_code error;
  // The folder appears last, so that one that exists is complete.
  if (data.make.empty() || fs::exists(sweep / "data", error)) return;
  say(data.note);
  std::vector<std::string> command = data.make;
  const fs::path partial = fs::absolute(sweep) / "data.tmp";
  fs::remove_all(partial, error);
  std::replace(command.begin(), command.end(), (fs::absolute(sweep) / "data").string(),
               partial.string());
  const ChildResult result = run_child(command, sweep / "data.log");
  if (interrupted()) throw Error(Exit::interrupted, "interrupted while data was generated");
  if (result.exit_code != 0)
    throw RunError(fmt::format("generating data: {}", result.last_line),
                   fmt::format("its messages are in {}", (sweep / "data.log").string()));
  fs::rename(partial, sweep / "data");
}

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kDesignFile = "design.json";
constexpr std::uint64_t kMaxRepeats = 10'000;

bool names_plugins(const std::string& word) { return word.starts_with("plugins.path="); }

/// Resolves model.ops=auto once for all cells: native only if every cell prefers it, so that cells
/// differ only in the swept keys.
std::string shared_ops(const std::vector<std::optional<Recipe>>& recipes) {
  const bool native =
      std::all_of(recipes.begin(), recipes.end(), [](const std::optional<Recipe>& recipe) {
        return !recipe || train::ops_of(with_ops(*recipe)) == train::ModelOps::native ||
               train::ops_of(*recipe) == train::ModelOps::torch;
      });
  return native ? "native" : "torch";
}

std::vector<std::string> command_metrics(const SweepArguments& arguments) {
  return arguments.metrics.empty() ? std::vector<std::string>{"wall"} : arguments.metrics;
}

std::string folder_of(const SweepArguments& arguments) {
  return arguments.folder.empty() ? fs::current_path().string() : arguments.folder;
}

std::string metrics_of(const SweepArguments& arguments) {
  if (arguments.command) return fmt::format("{}", fmt::join(command_metrics(arguments), ","));
  return arguments.metrics.empty() ? "images_per_s"
                                   : fmt::format("{}", fmt::join(arguments.metrics, ","));
}

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

/// Returns the number of repeats; empty for auto.
std::optional<std::uint64_t> repeats_of(const std::string& text) {
  if (text == "auto") return {};
  std::uint64_t repeats = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), repeats);
  if (error != std::errc() || end != text.data() + text.size() || repeats == 0 ||
      repeats > kMaxRepeats)
    throw UsageError(fmt::format("--repeats {}: a number from 1 to {}, or auto", text, kMaxRepeats),
                     fmt::format("verdicts need {}: --repeats {}", study::kRepeatsForVerdict,
                                 study::kRepeatsForVerdict));
  return repeats;
}

/// Returns recipe and design of the arguments.
study::SweepWords words_of(const SweepArguments& arguments) {
  if (arguments.study.empty()) {
    auto words =
        study::read_words(arguments.recipe, arguments.cells, arguments.design.value_or("grid"));
    if (words.design.cells.size() == 1 && arguments.cells.empty())
      throw UsageError("nothing is swept: every key has one value",
                       "give a key several values, as in loader.workers=0,1,2, or name rows with "
                       "--cell; millrace train runs one combination");
    return words;
  }
  std::vector<std::string> overrides;
  if (!arguments.data.empty()) overrides.push_back(arguments.data);
  overrides.insert(overrides.end(), arguments.recipe.begin(), arguments.recipe.end());
  const study::Study study = study::parse_study(arguments.study, arguments.study_file);
  return study::study_words(study, arguments.brief, overrides);
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

/// Throws UsageError if a program that the sweep would execute is missing.
void check_programs(const study::SweepCommand& command, const study::SweepDesign& design) {
  for (const study::SweepCell& cell : design.cells) {
    study::PlaceholderValues values = study::values_of(cell);
    values.insert({{"run", "run"}, {"repeat", "0"}});
    const auto words = study::words_of(command, values);
    if (words.empty())
      throw UsageError("--command is empty", "for example --command 'python train.py {workers}'");
    if (program_exists(words[0], command.folder)) continue;
    throw UsageError(fmt::format("{}: command not found", words[0]),
                     command.shell == "none"
                         ? "give its path, or leave out --shell none for what a "
                           "shell understands"
                         : "--shell sh, --shell bash or --shell none");
  }
}

/// Builds the question of a sweep over any program.
Question command_question(const SweepArguments& arguments) {
  std::vector<std::string> own{}, keys{};
  for (const std::string& word : arguments.recipe)
    (word.starts_with("sweep.") ? own : keys).push_back(word);
  study::SweepCommand command{.text = *arguments.command,
                              .shell = arguments.shell.value_or("sh"),
                              .folder = folder_of(arguments),
                              .timeout_s = arguments.timeout_s.value_or(0),
                              .metrics = {}};
  std::vector<study::SweepMetric> metrics;
  for (const std::string& text : command_metrics(arguments)) {
    command.metrics.push_back(study::command_metric(text));
    metrics.push_back(command.metrics.back().metric);
    if (std::count_if(metrics.begin(), metrics.end(),
                      [&](const auto& one) { return one.name == metrics.back().name; }) > 1)
      throw UsageError(fmt::format("--metric {} is given twice", text), "name it once");
  }
  auto design = study::command_design(keys, arguments.cells, arguments.design.value_or("grid"));
  study::check_placeholders(command, design);
  check_programs(command, design);
  design.command = command.text;
  const std::size_t cells = design.cells.size();
  return {.recipe_name = {},
          .design = std::move(design),
          .recipes = std::vector<std::optional<Recipe>>(cells, load_recipe(own)),
          .refusals = std::vector<std::string>(cells),
          .ops = "torch",
          .metrics = std::move(metrics),
          .repeats = repeats_of(arguments.repeats.value_or("1")),
          .is_study = false,
          .command = std::move(command)};
}

}  // namespace

bool SweepArguments::says_what() const {
  return command || !study.empty() || !cells.empty() ||
         !std::all_of(recipe.begin(), recipe.end(), names_plugins);
}

const Recipe& Question::first() const {
  for (const auto& recipe : recipes)
    if (recipe) return *recipe;
  throw UsageError(fmt::format("no row of the study can be run: {}", refusals.front()),
                   "millrace train with the row's keys shows more");
}

study::ComparisonRules Question::rules() const {
  return {first().number("sweep.margin"), first().number("sweep.share_margin"),
          static_cast<std::uint64_t>(first().integer("sweep.folds"))};
}

Recipe Question::recipe_of(std::size_t cell, std::uint64_t repeat) const {
  Recipe recipe = recipes[cell].value();
  if (const std::uint64_t folds = rules().folds; folds > 0 && !command)
    recipe.set(fmt::format("data.fold={}/{}", repeat % folds + 1, folds));
  return recipe;
}

void choose_folds(SweepArguments& arguments, Question& question) {
  const std::uint64_t folds = question.rules().folds;
  if (folds == 0) return;
  if (folds == 1) throw UsageError("sweep.folds=1: there are at least 2 folds");
  if (question.command)
    throw UsageError("sweep.folds with --command: programs of others have no data.fold",
                     "leave it out");
  if (!question.repeats)
    throw UsageError("sweep.folds with --repeats auto: the folds are the repeats",
                     fmt::format("leave --repeats out, or give a multiple of {}", folds));
  for (const auto& recipe : question.recipes)
    if (recipe && !recipe->text("data.fold").empty())
      throw UsageError("sweep.folds with data.fold: each repeat has a fold of its own",
                       "leave one of them out");
  if (arguments.repeats) return;
  arguments.repeats = std::to_string(folds);
  question.repeats = folds;
}

void take_study(SweepArguments& arguments) {
  if (arguments.command) {
    if (arguments.brief)
      throw UsageError("--short belongs to a study file, not to --command",
                       "millrace sweep STUDY.toml --short");
    return;
  }
  if (arguments.shell || arguments.timeout_s)
    if (!arguments.resume)
      throw UsageError(
          fmt::format("--{} belongs to --command", arguments.shell ? "shell" : "timeout"),
          "millrace sweep --command 'python train.py --workers {workers}' workers=0,2");
  if (arguments.recipe.empty() || recipe::is_override(arguments.recipe[0])) {
    if (arguments.brief && !arguments.resume)
      throw UsageError("--short belongs to a study file", "millrace sweep STUDY.toml --short");
    return;
  }
  const std::string& name = arguments.recipe[0];
  std::error_code error;
  fs::path file = name;
  for (const fs::path& folder : recipe_folders())
    if (!fs::is_regular_file(file, error)) file = folder / "studies" / (name + ".toml");
  const std::string text = base::read_record(file);
  if (!study::is_study(text)) {
    if (arguments.brief)
      throw UsageError(fmt::format("--short: {} is not a study file", name),
                       "a study file has rows ([[row]]); shipped ones are s0 to s4");
    return;
  }
  const study::Study study = study::parse_study(text, file.string());
  if (!arguments.cells.empty() || arguments.design)
    throw UsageError(fmt::format("{} has its own rows: it takes no {}", name,
                                 arguments.design ? "--design" : "--cell"),
                     "add a [[row]] to a copy of the file");
  arguments.recipe.erase(arguments.recipe.begin());
  for (const std::string& word : arguments.recipe)
    if (!recipe::is_override(word) ||
        (word.find("+=") == std::string::npos && study::parse_axis(word).values.size() > 1))
      throw UsageError(fmt::format("{}: a study's rows are in its file", word),
                       "after the file, key=value sets a key of all rows");
  arguments.study = text;
  arguments.study_file = file.string();
  arguments.design = "study";
  if (!arguments.repeats) arguments.repeats = study.repeats;
  if (arguments.metrics.empty()) arguments.metrics = {study.metric};
}

namespace {

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

Question question_of(const SweepArguments& arguments, const std::string& ops) {
  if (arguments.command) return command_question(arguments);
  Question question{.recipe_name = {},
                    .design = {},
                    .recipes = {},
                    .refusals = {},
                    .ops = {},
                    .metrics = study::sweep_metrics(metrics_of(arguments)),
                    .repeats = repeats_of(arguments.repeats.value_or("1")),
                    .is_study = !arguments.study.empty(),
                    .command = {}};
  study::SweepWords words = words_of(arguments);
  question.recipe_name = std::move(words.recipe);
  question.design = std::move(words.design);
  for (const auto& cell : question.design.cells) {  // finds errors before anything runs
    std::vector<std::string> all = cell.overrides;
    const bool own_recipe = !all.empty() && !recipe::is_override(all[0]);
    if (!question.recipe_name.empty() && !own_recipe) all.insert(all.begin(), question.recipe_name);
    question.refusals.emplace_back();
    try {
      question.recipes.emplace_back(load_recipe(all));
    } catch (const UsageError& error) {
      if (!question.is_study) throw;
      question.recipes.emplace_back();
      question.refusals.back() = error.what();
    }
  }
  question.ops = ops.empty() ? shared_ops(question.recipes) : ops;
  for (auto& recipe : question.recipes)
    if (recipe && train::ops_of(*recipe) == train::ModelOps::automatic)
      recipe->set("model.ops=" + question.ops);
  return question;
}

}  // namespace millrace::tools
