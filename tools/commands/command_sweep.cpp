// millrace sweep: runs an ablation. Every combination is a process of its own; runs are interleaved
// and end in one table.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "study/records/run_directory.h"
#include "study/records/run_files.h"
#include "study/sweep/sweep_table.h"
#include "tools/commands/commands.h"
#include "tools/commands/sweep_runner.h"
#include "tools/terminal/console.h"
#include "tools/terminal/output.h"
#include "tools/training/pipeline_setup.h"
#include "tools/training/strategy_setup.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kDesignFile = "design.json";
constexpr std::uint64_t kMaxRepeats = 10'000;

/// Arguments as given. Missing ones come from the resumed sweep, or are defaults.
struct SweepArguments {
  std::vector<std::string> recipe;
  std::vector<std::string> cells;
  std::optional<std::string> design;
  std::optional<std::string> repeats;
  std::optional<std::string> metric;
  std::string run;
  bool resume = false;

  /// Returns whether the arguments define a sweep. plugins.path=... alone only says what may be
  /// loaded.
  bool says_what() const {
    return !cells.empty() || !std::all_of(recipe.begin(), recipe.end(), names_plugins);
  }
  static bool names_plugins(const std::string& word) { return word.starts_with("plugins.path="); }
};

/// The sweep that the command line asks for.
struct Question {
  std::string recipe_name;
  study::SweepDesign design;
  std::vector<Recipe> recipes;  ///< one recipe per cell, with model.ops resolved
  std::string ops;              ///< resolved value of model.ops=auto
  study::SweepMetric metric;
  std::optional<std::uint64_t> repeats;  ///< empty: auto
};

/// Resolves model.ops=auto once for all cells: native only if every cell prefers it, so that cells
/// differ only in the swept keys.
std::string shared_ops(const std::vector<Recipe>& recipes) {
  const bool native = std::all_of(recipes.begin(), recipes.end(), [](const Recipe& recipe) {
    return with_ops(recipe).text("model.ops") == "native" || recipe.text("model.ops") == "torch";
  });
  return native ? "native" : "torch";
}

/// Returns the arguments as JSON, for the sweep's directory.
Json to_json(const SweepArguments& arguments) {
  return {{"recipe", arguments.recipe},
          {"cells", arguments.cells},
          {"design", arguments.design.value_or("grid")},
          {"repeats", arguments.repeats.value_or("1")},
          {"metric", arguments.metric.value_or("images_per_s")}};
}

/// Returns whether a value has the type that to_json() gives the key.
bool is_as_written(const std::string& key, const Json& value) {
  if (key != "recipe" && key != "cells") return value.is_string();
  return value.is_array() &&
         std::all_of(value.begin(), value.end(), [](const Json& word) { return word.is_string(); });
}

/// Returns the arguments of the sweep at `path`; empty if there is none.
std::optional<Json> design_at(const fs::path& path) {
  std::ifstream in(path / kDesignFile);
  if (!in) return {};
  const Json json = study::parse_json(in);
  for (const char* key : {"recipe", "cells", "design", "repeats", "metric"})
    if (!json.is_object() || !json.contains(key) || !is_as_written(key, json[key]))
      throw DataError(fmt::format("{} is damaged", (path / kDesignFile).string()),
                      "start the sweep without --resume: its directory is kept under another name");
  return json;
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
    const bool same = (*design)["recipe"] == wanted["recipe"] &&
                      (*design)["cells"] == wanted["cells"] &&
                      (*design)["design"] == wanted["design"];
    const auto written = fs::last_write_time(path / kDesignFile, error);
    if ((arguments.says_what() && !same) || (!newest.empty() && written < when)) continue;
    newest = path;
    when = written;
  }
  return newest;
}

/// Returns the sweep to resume; empty if a new one is to begin. Completes `arguments`.
fs::path find_resumed(SweepArguments& arguments) {
  if (!arguments.resume) return {};
  const fs::path path = arguments.run.empty() ? newest_sweep(arguments) : fs::path(arguments.run);
  const auto design = path.empty() ? std::nullopt : design_at(path);
  if (!design && !arguments.says_what())
    throw UsageError(path.empty()
                         ? "--resume: there is no sweep in runs/"
                         : fmt::format("--resume: {} is not a sweep's directory", path.string()),
                     "name its directory with --run DIR, or give a recipe and keys to sweep");
  if (!design) {
    say("nothing to resume: starting the sweep");
    return {};
  }
  if (!arguments.says_what()) {
    auto words = design->at("recipe").get<std::vector<std::string>>();
    if (!arguments.recipe.empty()) std::erase_if(words, SweepArguments::names_plugins);
    words.insert(words.end(), arguments.recipe.begin(), arguments.recipe.end());
    arguments.recipe = std::move(words);
    arguments.cells = design->at("cells").get<std::vector<std::string>>();
    if (!arguments.design) arguments.design = design->at("design");
  }
  if (!arguments.repeats) arguments.repeats = design->at("repeats");
  if (!arguments.metric) arguments.metric = design->at("metric");
  return path;
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

/// Builds the question. `ops` is the resolved model.ops=auto of a resumed sweep; empty for a new
/// one.
Question question_of(const SweepArguments& arguments, const std::string& ops) {
  Question question{.recipe_name = {},
                    .design = {},
                    .recipes = {},
                    .ops = {},
                    .metric = study::sweep_metric(arguments.metric.value_or("images_per_s")),
                    .repeats = repeats_of(arguments.repeats.value_or("1"))};
  study::SweepWords words =
      study::read_words(arguments.recipe, arguments.cells, arguments.design.value_or("grid"));
  question.recipe_name = std::move(words.recipe);
  question.design = std::move(words.design);
  for (const auto& cell : question.design.cells) {  // finds errors before anything runs
    std::vector<std::string> all = cell.overrides;
    if (!question.recipe_name.empty()) all.insert(all.begin(), question.recipe_name);
    question.recipes.push_back(load_recipe(all));
  }
  question.ops = ops.empty() ? shared_ops(question.recipes) : ops;
  for (Recipe& recipe : question.recipes)
    if (recipe.text("model.ops") == "auto") recipe.set("model.ops=" + question.ops);
  return question;
}

/// Returns the number of repeats that --repeats auto chooses. It depends on the first blocks alone,
/// so that a resumed sweep chooses the same.
std::uint64_t after_pilot(const SweepRunner& runner, const Question& question, Json& json) {
  const Recipe& recipe = question.recipes[0];
  const auto choice = study::choose_repeats(
      study::block_log_ratios(runner.records(study::kRepeatsForVerdict), question.metric),
      recipe.number("sweep.margin"),
      static_cast<std::uint64_t>(recipe.integer("sweep.most_repeats")));
  say(fmt::format("after {} repeats: {} in all will detect a difference of {:.1f}%{}",
                  study::kRepeatsForVerdict, choice.repeats, 100 * (choice.detectable - 1),
                  choice.suffices ? "" : " (sweep.most_repeats allows no more)"));
  json["auto"] = {{"pilot", study::kRepeatsForVerdict},
                  {"repeats", choice.repeats},
                  {"suffices", choice.suffices},
                  {"smallest_detectable", choice.detectable - 1}};
  return choice.repeats;
}

Exit sweep(SweepArguments arguments) {
  const fs::path resumed = find_resumed(arguments);
  const std::string ops = resumed.empty() ? "" : design_at(resumed)->value("ops", "torch");
  const Question question = question_of(arguments, ops);
  const Recipe& first = question.recipes.front();
  {  // finds missing data sets before it makes a directory
    SweepKeys keys;
    for (const Recipe& recipe : question.recipes) keys.identity(recipe, 0);
  }
  fs::path path = resumed;
  std::optional<study::RunLock> lock;
  if (resumed.empty()) {
    study::RunDirectory directory(arguments.run.empty()
                                      ? study::make_run_folder("sweep-" + first.name())
                                      : fs::path(arguments.run),
                                  first.to_toml());
    path = directory.path();
    if (!directory.moved_aside().empty())
      say(fmt::format("moved the earlier run in {} to {}", path.string(),
                      directory.moved_aside().string()));
    lock = std::move(directory.lock());
  } else {
    lock.emplace(path);
  }
  lock->share_with_children();  // no child may still write when another sweep begins
  Json words = to_json(arguments);
  words["ops"] = question.ops;
  study::write_file(path / kDesignFile, study::to_text(words, 2) + "\n");

  SweepRunner runner(path, question.design, question.recipe_name, question.recipes);
  std::uint64_t repeats = question.repeats.value_or(study::kRepeatsForVerdict);
  const std::size_t cells = question.design.cells.size();
  say(fmt::format("{} combinations x {} = {} runs, interleaved; records in {}", cells, repeats,
                  cells * repeats, path.string()));
  if (!resumed.empty()) {
    const std::size_t others = runner.strangers(repeats);
    say(fmt::format("resumed: {} runs are finished{}", runner.finished(repeats),
                    others == 0 ? ""
                                : fmt::format("; {} finished runs of another design, program or "
                                              "data set are kept",
                                              others)));
  }
  Json json{{"command", "sweep"}, {"recipe", first.name()}};
  runner.run(repeats);
  if (!question.repeats) {
    repeats = after_pilot(runner, question, json);
    runner.run(repeats);
  }

  const study::SweepTable table = study::sweep_table(
      question.design, runner.records(repeats), question.metric, first.number("sweep.margin"),
      question.repeats ? study::kConfidence : study::kConfidenceAfterPilot);
  json["repeats"] = repeats;
  json["metric"] = question.metric.name;
  json["margin"] = table.margin;
  json.update(study::to_json(table));
  study::write_file(path / "sweep.json", study::to_text(json, 2) + "\n");
  if (verbosity().json) {
    print("{}\n", study::to_text(json, 2));
  } else {
    print("\n{}", to_table(study::text_rows(table)));
    for (const auto& note : study::text_notes(table)) print("{}\n", note);
  }
  return Exit::done;
}

}  // namespace

void add_sweep(CLI::App& app, Command& chosen) {
  auto* command =
      app.add_subcommand("sweep", "run an ablation: every combination of key=a,b,c, interleaved");
  auto arguments = std::make_shared<SweepArguments>();
  command->add_option("recipe", arguments->recipe,
                      "[RECIPE] key=a,b,c ... (commas inside [] do not separate values)");
  command
      ->add_option("--cell", arguments->cells,
                   "one combination, 'key=value key=value ...'; give one --cell per row")
      ->expected(1)
      ->take_all();
  command
      ->add_option("--design", arguments->design,
                   "grid: every combination (default); paired: first values together, second "
                   "values together ...")
      ->check(CLI::IsMember({"grid", "paired"}));
  command->add_option("--repeats", arguments->repeats,
                      "runs per combination, each with another seed; auto: as many as the margin "
                      "needs, after a pilot of 5");
  command->add_flag("--resume", arguments->resume,
                    "continue the sweep in --run DIR, or the newest one in runs/; finished runs "
                    "are not repeated");
  command->add_option("--run", arguments->run, "directory (default: runs/sweep-RECIPE-DATE-TIME)");
  command->add_option(
      "--metric", arguments->metric,
      "metric that rows are compared by: images_per_s (default), wall_s, load_s or update_s");
  add_common(*command);
  command->footer(
      "Example:\n  millrace sweep mnist-lenet data.path=data/digits loader.workers=0,1,2 "
      "train.epochs=1 --repeats 5");
  command->callback([arguments, &chosen] {
    chosen = [arguments](const ProgramStart&) { return sweep(*arguments); };
  });
}

}  // namespace millrace::tools
