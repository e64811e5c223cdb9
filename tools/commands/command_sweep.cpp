// millrace sweep: runs an ablation. Every combination is a process of its own; runs are interleaved
// and end in one table.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "study/records/run_directory.h"
#include "study/sweep/sweep_table.h"
#include "tools/commands/commands.h"
#include "tools/commands/sweep_arguments.h"
#include "tools/commands/sweep_data.h"
#include "tools/commands/sweep_output.h"
#include "tools/commands/sweep_runner.h"
#include "tools/terminal/console.h"
#include "tools/terminal/output.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Returns the number of repeats that --repeats auto chooses. It depends on the first blocks alone,
/// so that a resumed sweep chooses the same.
std::uint64_t after_pilot(const SweepRunner& runner, const Question& question, Json& json) {
  const Recipe& recipe = question.first();
  const auto records = runner.records(study::kRepeatsForVerdict);
  const study::SweepMetric& metric = question.metrics.front();
  const bool differences = study::by_differences(records, metric);
  const auto choice = study::choose_repeats(
      study::block_effects(question.design, records, metric),
      study::margin_of(question.margins(), metric, differences),
      static_cast<std::uint64_t>(recipe.integer("sweep.most_repeats")), differences);
  const double effect = differences ? choice.detectable : choice.detectable - 1;
  const bool percent = !differences || metric.is_share;
  say(fmt::format("after {} repeats: {} in all will detect a difference of {:.{}f}{}{}",
                  study::kRepeatsForVerdict, choice.repeats, percent ? 100 * effect : effect,
                  percent ? 1 : 4,
                  !percent      ? ""
                  : differences ? " percentage points"
                                : "%",
                  choice.suffices ? "" : " (sweep.most_repeats allows no more)"));
  json["auto"] = {{"pilot", study::kRepeatsForVerdict},
                  {"repeats", choice.repeats},
                  {"suffices", choice.suffices},
                  {"smallest_detectable", effect}};
  return choice.repeats;
}

/// A sweep's directory, and the lock that is held while it is written.
struct SweepFolder {
  fs::path path;
  std::optional<study::RunLock> lock;
};

/// Opens the directory at `path`; a new one if there is no sweep to resume.
SweepFolder open_folder(const fs::path& path, bool is_resumed, const Question& question) {
  const std::string name = question.command ? "command" : question.first().name();
  SweepFolder folder;
  if (is_resumed) {
    folder.path = path;
    folder.lock.emplace(path);
  } else {
    study::RunDirectory directory(path.empty() ? study::make_run_folder("sweep-" + name) : path,
                                  question.command ? "# a sweep of a command: see design.json\n"
                                                   : question.first().to_toml());
    folder.path = directory.path();
    if (!directory.moved_aside().empty())
      say(fmt::format("moved the earlier run in {} to {}", folder.path.string(),
                      directory.moved_aside().string()));
    folder.lock = std::move(directory.lock());
  }
  folder.lock->share_with_children();  // no child may still write when another sweep begins
  return folder;
}

/// Says what will be run, and what a resumed sweep has finished.
void say_plan(SweepRunner& runner, const Question& question, const fs::path& path,
              std::uint64_t repeats, bool is_resumed) {
  const std::size_t finished = runner.finished(repeats);
  const std::size_t runs = runner.planned(repeats);
  say(fmt::format("{} combinations x {} = {} runs, interleaved; records in {}", runs / repeats,
                  repeats, runs, path.string()));
  for (std::size_t i = 0; i < question.refusals.size(); ++i)
    if (!question.refusals[i].empty())
      say(fmt::format("{}: not run: {}", question.design.cells[i].labels[0], question.refusals[i]));
  if (!is_resumed) return;
  const std::size_t others = runner.unplanned_runs(repeats);
  say(fmt::format("resumed: {} runs are finished{}", finished,
                  others == 0 ? ""
                              : fmt::format("; {} finished runs of another design, program or "
                                            "data set are kept",
                                            others)));
}

/// Prints the results and writes them into the sweep's directory.
void publish(const study::SweepTable& table, Json json, const fs::path& path, bool wide) {
  json["metric"] = table.metric.name;
  json["margin"] = table.margins.ratio;
  json["share_margin"] = table.margins.share;
  json["metrics"] = Json::array();
  for (const study::SweepMetric& metric : table.metrics()) json["metrics"].push_back(metric.name);
  if (!table.design.title.empty()) json["title"] = table.design.title;
  json.update(study::to_json(table));
  study::write_file(path / "sweep.json", study::to_text(json, 2) + "\n");
  write_tables(table, path);
  if (verbosity().json)
    print("{}\n", study::to_text(json, 2));
  else
    print_table(table, path, wide);
}

Exit sweep(SweepArguments arguments) {
  take_study(arguments);
  const fs::path resumed = find_resumed(arguments);
  const bool is_resumed = !resumed.empty();
  fs::path path = is_resumed ? resumed : fs::path(arguments.run);
  StudyData data;
  if (!arguments.study.empty()) {
    question_of(arguments, "").first();  // finds errors before it makes a directory
    if (path.empty())
      path = study::make_run_folder("sweep-" + fs::path(arguments.study_file).stem().string());
    data = study_data(arguments, path);
    if (is_resumed && arguments.data != data.override_text)  // MILLRACE_DATA has changed
      data = {arguments.data, {}, arguments.data};
    arguments.data = data.override_text;
  }
  const Question question = question_of(arguments, is_resumed ? ops_at(resumed) : "");
  if (data.make.empty() &&
      !question.command) {  // finds missing data sets before it makes a directory
    SweepKeys keys;
    for (const auto& recipe : question.recipes)
      if (recipe) keys.identity(*recipe, 0);
  }
  const SweepFolder folder = open_folder(path, is_resumed, question);
  path = folder.path;
  make_data(data, path);
  write_design(path, arguments, question.ops);

  SweepRunner runner(path, question);
  std::uint64_t repeats = question.repeats.value_or(study::kRepeatsForVerdict);
  say_plan(runner, question, path, repeats, is_resumed);
  Json json;
  json["command"] = "sweep";
  if (question.command)
    json["program"] = {{"command", question.command->text},
                       {"shell", question.command->shell},
                       {"folder", question.command->folder},
                       {"timeout_s", question.command->timeout_s}};
  else
    json["recipe"] = question.first().name();
  runner.run(repeats);
  if (!question.repeats) {
    repeats = after_pilot(runner, question, json);
    runner.run(repeats);
  }
  json["repeats"] = repeats;
  study::SweepDesign design = question.design;
  if (!data.note.empty()) design.notes.push_back(data.note);
  publish(study::sweep_table(std::move(design), runner.records(repeats), question.metrics,
                             question.margins(),
                             question.repeats ? study::kConfidence : study::kConfidenceAfterPilot,
                             runner.refusals()),
          std::move(json), path, arguments.wide);
  const auto failed = question.command
                          ? std::count_if(runner.refusals().begin(), runner.refusals().end(),
                                          [](const auto& text) { return !text.empty(); })
                          : 0;
  if (failed == 0) return Exit::done;
  say(fmt::format("{} of {} combinations failed; --resume tries them again", failed,
                  question.design.cells.size()));
  return Exit::failed;
}

}  // namespace

void add_sweep(CLI::App& app, Command& chosen) {
  auto* command =
      app.add_subcommand("sweep", "run an ablation: every combination of key=a,b,c, interleaved");
  auto arguments = std::make_shared<SweepArguments>();
  command->add_option(
      "recipe", arguments->recipe,
      "[RECIPE] key=a,b,c ... (commas inside [] do not separate values), or a study "
      "file (STUDY.toml, or s0 to s4) and key=value for all its rows");
  command
      ->add_option("--cell", arguments->cells,
                   "one row: a single quoted argument 'key=value key=value ...', or '' for the "
                   "unchanged recipe; give one --cell per row")
      ->allow_extra_args(false);  // otherwise it takes all words up to the next option
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
  command
      ->add_option("--metric", arguments->metrics,
                   "what rows are compared by: images_per_s (default), wall_s, top1, test_loss, or "
                   "any number of summary.json (spans.forward); several with commas, the first one "
                   "decides. With --command: wall (default), FILE.json:KEY, or a regular "
                   "expression for its output; several by repeating --metric")
      ->allow_extra_args(false);
  command
      ->add_option("--command", arguments->command,
                   "run this in place of millrace train: 'python train.py --workers {workers}'; "
                   "{run} is a folder for each run's files, {repeat} counts from 0")
      ->allow_extra_args(false);
  command->add_option("--shell", arguments->shell,
                      "shell that --command is for: sh (default), bash, ..., or none, which "
                      "executes its words directly");
  command
      ->add_option("--timeout", arguments->timeout_s,
                   "seconds after which a run of --command fails (default: none)")
      ->check(CLI::PositiveNumber);
  command->add_flag("--wide", arguments->wide, "print all columns, however wide the terminal is");
  command->add_flag("--short", arguments->brief,
                    "a study with fewer steps and smaller data; all rows and columns");
  add_common(*command);
  command->footer(
      "Example:\n  millrace sweep mnist-lenet data.path=data/digits loader.workers=0,1,2 "
      "train.epochs=1 --repeats 5\n  millrace sweep s4 --short\n  millrace sweep --command 'python "
      "train.py --workers {workers}' workers=0,2,4 "
      "--metric '([0-9.]+) images/s' --repeats 5");
  command->callback([arguments, &chosen] {
    chosen = [arguments](const ProgramStart&) { return sweep(*arguments); };
  });
}

}  // namespace millrace::tools
