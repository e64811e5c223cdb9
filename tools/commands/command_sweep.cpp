// millrace sweep: runs an ablation. Every combination is a process of its own; runs are
// interleaved and end in one table.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "study/records/run_directory.h"
#include "study/records/signature.h"
#include "study/report/report.h"
#include "study/sweep/sweep_table.h"
#include "tools/commands/commands.h"
#include "tools/commands/design_file.h"
#include "tools/commands/sweep.h"
#include "tools/commands/sweep_cluster.h"
#include "tools/commands/sweep_plan.h"
#include "tools/terminal/terminal.h"

namespace millrace::tools {

// Lays out blocks of a table, remarks and notes.

namespace {

/// Returns a block's lines, each remark below its row.
std::string block_text(const study::TextBlock& block, std::size_t width) {
  std::string text =
      block.heading.empty() ? "\n" : "\n" + wrapped(block.heading, width, "", "") + "\n";
  std::istringstream lines(to_table(block.rows));
  std::size_t row = 0;
  for (std::string line; std::getline(lines, line); ++row) {
    text += line + "\n";
    if (!block.remarks[row].empty())
      text += wrapped(block.remarks[row], width, "  ", "    ") + "\n";
  }
  return text;
}

}  // namespace

void print_table(const study::SweepTable& table, const std::filesystem::path& sweep, bool wide) {
  const std::size_t width = terminal_columns();
  const study::TerminalTable shown = study::terminal_table(table, width, wide);
  if (!table.design.title.empty()) print("\n{}\n", wrapped(table.design.title, width));
  for (const study::TextBlock& block : shown.blocks) print("{}", block_text(block, width));
  if (!shown.legend.empty()) print("\n");
  for (const std::string& line : shown.legend) print("{}\n", wrapped(line, width));
  print("\n");
  if (!shown.left_out.empty())
    print_unless_quiet("{}\n", wrapped(fmt::format("more columns by --wide or in {}: {}",
                                                   (sweep / "table.csv").string(),
                                                   fmt::join(shown.left_out, ", ")),
                                       width));
  for (const auto& note : study::text_notes(table)) print("{}\n", wrapped(note, width));
}

void write_tables(const study::SweepTable& table, const std::filesystem::path& sweep) {
  study::write_derived_file(sweep / "table.csv", study::csv(study::csv_table(table)));
  study::write_derived_file(sweep / "runs.csv", study::csv(study::csv_runs(table)));
}

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
      study::margin_of(question.rules(), metric, differences),
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

}  // namespace

void publish_sweep(const study::SweepTable& table, Json json, const fs::path& path, bool wide) {
  json["metric"] = table.metric.name;
  json["margin"] = table.rules.ratio;
  json["share_margin"] = table.rules.share;
  if (table.rules.folds > 0) json["folds"] = table.rules.folds;
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

PreparedSweep prepare_sweep(SweepArguments& arguments) {
  take_study(arguments);
  PreparedSweep ready;
  const fs::path resumed = find_resumed(arguments);
  ready.is_resumed = !resumed.empty();
  fs::path path = ready.is_resumed ? resumed : fs::path(arguments.run);
  if (!ready.is_resumed && !path.empty() && is_planned(path))
    throw UsageError(
        fmt::format("{} holds a planned sweep", path.string()),
        "choose another directory: --run DIR; --resume --run DIR runs its blocks here");
  if (ready.is_resumed && is_planned(path) != arguments.plan)
    throw arguments.plan
        ? UsageError(
              fmt::format("--plan: {} was not planned, and its runs would be lost", path.string()),
              "plan a new sweep: leave out --resume")
        : UsageError(
              fmt::format("--resume: the newest sweep, {}, is a planned one", path.string()),
              "run its blocks here: millrace sweep --resume --run " + shell_word(path.string()));
  StudyData& data = ready.data;
  if (!arguments.study.empty()) {
    question_of(arguments, "").first();  // finds errors before it makes a directory
    if (path.empty())
      path = study::make_run_folder("sweep-" + fs::path(arguments.study_file).stem().string());
    data = study_data(arguments, path);
    if (ready.is_resumed && arguments.data != data.override_text)  // MILLRACE_DATA has changed
      data = {arguments.data, {}, arguments.data};
    arguments.data = data.override_text;
  }
  ready.question = question_of(arguments, ready.is_resumed ? ops_at(resumed) : "");
  choose_folds(arguments, ready.question);
  if (arguments.plan && !ready.question.repeats)
    throw UsageError("--repeats auto: a plan needs a number of blocks",
                     "plan five with --repeats 5; --plan --repeats 10 adds more later");
  if (data.make.empty() &&
      !ready.question.command) {  // finds missing data sets before it makes a directory
    SweepKeys keys;
    for (std::size_t cell = 0; cell < ready.question.recipes.size(); ++cell)
      if (ready.question.recipes[cell]) keys.identity(ready.question.recipe_of(cell, 0), 0);
  }
  ready.folder = open_folder(path, ready.is_resumed, ready.question);
  make_data(data, ready.folder.path);
  write_design(ready.folder.path, arguments, ready.question.ops);
  study::share_run_key_with_children();
  return ready;
}

Json heading_of_sweep(const Question& question) {
  Json json;
  json["command"] = "sweep";
  if (question.command)
    json["program"] = {{"command", question.command->text},
                       {"shell", question.command->shell},
                       {"folder", question.command->folder},
                       {"timeout_s", question.command->timeout_s}};
  else
    json["recipe"] = question.first().name();
  return json;
}

Exit ending_of_sweep(const SweepRunner& runner, const Question& question, const char* again) {
  const auto failed = question.command
                          ? std::count_if(runner.refusals().begin(), runner.refusals().end(),
                                          [](const auto& text) { return !text.empty(); })
                          : 0;
  if (failed == 0) return Exit::done;
  say(fmt::format("{} of {} combinations failed; {}", failed, question.design.cells.size(), again));
  return Exit::failed;
}

namespace {

/// Runs all blocks here, one after another.
Exit run_here(SweepArguments arguments) {
  const PreparedSweep ready = prepare_sweep(arguments);
  const Question& question = ready.question;
  const fs::path& path = ready.folder.path;
  SweepIdentities identities(question);
  SweepRunner runner(path, question, identities);
  std::uint64_t repeats = question.repeats.value_or(study::kRepeatsForVerdict);
  say_plan(runner, question, path, repeats, ready.is_resumed);
  Json json = heading_of_sweep(question);
  runner.run(repeats);
  if (!question.repeats) {
    repeats = after_pilot(runner, question, json);
    runner.run(repeats);
  }
  json["repeats"] = repeats;
  study::SweepDesign design = question.design;
  if (!ready.data.note.empty()) design.notes.push_back(ready.data.note);
  publish_sweep(
      study::sweep_table(
          std::move(design), runner.records(repeats), question.metrics, question.rules(),
          question.repeats ? study::kConfidence : study::kConfidenceAfterPilot, runner.refusals()),
      std::move(json), path, arguments.wide);
  return ending_of_sweep(runner, question, "--resume tries them again");
}

Exit sweep(const SweepArguments& arguments) {
  return is_of_planned_sweep(arguments) ? run_planned_sweep(arguments) : run_here(arguments);
}

}  // namespace

void add_sweep(CLI::App& app, Command& chosen) {
  auto* command =
      app.add_subcommand("sweep", "run an ablation: every combination of key=a,b,c, interleaved");
  auto arguments = std::make_shared<SweepArguments>();
  command->add_option(
      "recipe", arguments->recipe,
      "[RECIPE] key=a,b,c ... (commas inside [] do not separate values), or a study "
      "file (STUDY.toml, or s0 to s4) and key=value for all its rows, or the directory RUN of a "
      "planned sweep");
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
  add_block_options(*command, *arguments);
  command->add_flag("--wide", arguments->wide, "print all columns, however wide the terminal is");
  command->add_flag("--short", arguments->brief,
                    "a study with fewer steps and smaller data; all rows and columns");
  add_common(*command);
  command->footer(
      "Example:\n  millrace sweep mnist-lenet data.path=data/digits loader.workers=0,1,2 "
      "train.epochs=1 --repeats 5\n  millrace sweep s4 --short\n  millrace sweep --command 'python "
      "train.py --workers {workers}' workers=0,2,4 "
      "--metric '([0-9.]+) images/s' --repeats 5\n  millrace sweep mnist-lenet "
      "loader.workers=0,1,2 "
      "--repeats 4 --plan --run DIR; millrace sweep DIR --block 1; millrace sweep DIR --collect");
  command->callback([arguments, &chosen] {
    chosen = [arguments](const ProgramStart&) { return sweep(*arguments); };
  });
}

}  // namespace millrace::tools
