// Builds the question of a sweep of recipes or of a command.
#include "tools/commands/sweep_question.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "millrace/error.h"
#include "recipe/recipe_file.h"
#include "strategies/trainer/train_choices.h"
#include "study/analysis/statistics.h"
#include "study/sweep/study_file.h"
#include "tools/launch/launch.h"
#include "tools/training/setup.h"

namespace millrace::tools {
namespace {

constexpr std::uint64_t kMaxRepeats = 10'000;

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
    throw UsageError(
        "sweep.folds cannot be used with --command: data.fold is a key of millrace train",
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
