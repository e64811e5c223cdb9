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
#include "study/report/report.h"
#include "study/sweep/sweep_table.h"
#include "tools/commands/commands.h"
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
    print("{}\n",
          wrapped(fmt::format("more columns by --wide or in {}: {}", (sweep / "table.csv").string(),
                              fmt::join(shown.left_out, ", ")),
                  width));
  for (const auto& note : study::text_notes(table)) print("{}\n", wrapped(note, width));
}

void write_tables(const study::SweepTable& table, const std::filesystem::path& sweep) {
  study::write_file(sweep / "table.csv", study::csv(study::csv_table(table)));
  study::write_file(sweep / "runs.csv", study::csv(study::csv_runs(table)));
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

/// A sweep whose directory is ready.
struct Prepared {
  bool is_resumed = false;
  StudyData data;
  Question question;
  SweepFolder folder;
};

/// Finds the sweep to resume, or makes the directory of a new one; errors come first.
Prepared prepare(SweepArguments& arguments) {
  take_study(arguments);
  Prepared ready;
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
  if (arguments.plan && !ready.question.repeats)
    throw UsageError("--repeats auto: a plan needs a number of blocks",
                     "plan five with --repeats 5; --plan --repeats 10 adds more later");
  if (data.make.empty() &&
      !ready.question.command) {  // finds missing data sets before it makes a directory
    SweepKeys keys;
    for (const auto& recipe : ready.question.recipes)
      if (recipe) keys.identity(*recipe, 0);
  }
  ready.folder = open_folder(path, ready.is_resumed, ready.question);
  make_data(data, ready.folder.path);
  write_design(ready.folder.path, arguments, ready.question.ops);
  return ready;
}

/// Returns what sweep.json says first.
Json heading_of(const Question& question) {
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

/// Returns the exit code of a sweep that has its table: a failed command counts. `again` says how
/// to repeat it.
Exit ending_of(const SweepRunner& runner, const Question& question, const char* again) {
  const auto failed = question.command
                          ? std::count_if(runner.refusals().begin(), runner.refusals().end(),
                                          [](const auto& text) { return !text.empty(); })
                          : 0;
  if (failed == 0) return Exit::done;
  say(fmt::format("{} of {} combinations failed; {}", failed, question.design.cells.size(), again));
  return Exit::failed;
}

/// Runs all blocks here, one after another.
Exit run_here(SweepArguments arguments) {
  const Prepared ready = prepare(arguments);
  const Question& question = ready.question;
  const fs::path& path = ready.folder.path;
  SweepIdentities identities(question);
  SweepRunner runner(path, question, identities);
  std::uint64_t repeats = question.repeats.value_or(study::kRepeatsForVerdict);
  say_plan(runner, question, path, repeats, ready.is_resumed);
  Json json = heading_of(question);
  runner.run(repeats);
  if (!question.repeats) {
    repeats = after_pilot(runner, question, json);
    runner.run(repeats);
  }
  json["repeats"] = repeats;
  study::SweepDesign design = question.design;
  if (!ready.data.note.empty()) design.notes.push_back(ready.data.note);
  publish(study::sweep_table(std::move(design), runner.records(repeats), question.metrics,
                             question.margins(),
                             question.repeats ? study::kConfidence : study::kConfidenceAfterPilot,
                             runner.refusals()),
          std::move(json), path, arguments.wide);
  return ending_of(runner, question, "--resume tries them again");
}

/// A planned sweep, and what it asks.
struct Planned {
  SweepPlan plan;
  SweepArguments arguments;
  Question question;
};

/// Returns the directory that the arguments name, as RUN or by --run.
fs::path named_run(const SweepArguments& arguments) {
  if (arguments.recipe.size() == 1 && arguments.run.empty()) return arguments.recipe[0];
  if (arguments.recipe.empty() && !arguments.run.empty()) return arguments.run;
  throw UsageError("name one directory of a planned sweep", "millrace sweep RUN --block K");
}

/// Enters the folder in which the sweep was planned, where its relative paths begin.
void enter(const SweepPlan& plan) {
  std::error_code error;
  fs::current_path(plan.folder, error);
  if (error)
    throw UsageError(fmt::format("{}, where {} was planned, cannot be entered: {}", plan.folder,
                                 plan.path.string(), error.message()),
                     "every host needs it under this path");
}

Planned open_planned(const SweepArguments& arguments) {
  Planned sweep{read_plan(named_run(arguments)), arguments, {}};
  enter(sweep.plan);
  require_same_program(sweep.plan);
  sweep.arguments.recipe.clear();
  sweep.arguments.run = sweep.plan.path.string();
  sweep.arguments.resume = true;
  find_resumed(sweep.arguments);
  sweep.question = question_of(sweep.arguments, ops_at(sweep.plan.path));
  return sweep;
}

std::chrono::milliseconds patience_of(const SweepArguments& arguments) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * arguments.patience_s));
}

/// Makes a plan, or adds blocks to one.
SweepPlan plan_blocks(SweepArguments arguments) {
  if (arguments.recipe.size() == 1 && is_planned(arguments.recipe[0])) {
    const SweepPlan old = read_plan(arguments.recipe[0]);
    enter(old);
    require_same_program(old);
    arguments.run = old.path.string();
    arguments.recipe.clear();
    arguments.resume = true;
  }
  arguments.plan = true;
  const Prepared ready = prepare(arguments);
  if (ready.question.command)
    for (const auto& metric : ready.question.command->metrics)
      if (metric.kind == study::CommandMetric::Kind::file &&
          metric.file.find("{run}") == metric.file.npos)
        throw UsageError(
            fmt::format("--metric {}: blocks on several hosts would write the same file",
                        metric.file),
            "write it into the run's folder: --metric {run}/FILE.json:KEY");
  SweepIdentities identities(ready.question);
  SweepPlan plan = write_plan(ready.folder.path, identities, ready.question.repeats.value_or(1),
                              ready.data.note);
  say(fmt::format("planned {} blocks of {} combinations in {}", plan.size(),
                  ready.question.design.cells.size(), plan.path.string()));
  return plan;
}

Exit plan_sweep(const SweepArguments& arguments) {
  const SweepPlan plan = plan_blocks(arguments);
  if (verbosity().json)
    print("{}\n",
          study::to_text(
              Json{{"command", "sweep"}, {"run", plan.path.string()}, {"blocks", plan.size()}}, 2));
  else
    print("{}\n", plan.path.string());
  return Exit::done;
}

/// Writes the index and the table of the blocks that are done.
Exit collect(const SweepArguments& given) {
  const auto [plan, arguments, question] = open_planned(given);
  const study::RunLock lock(plan.path);
  CollectedBlocks blocks = collect_blocks(plan);
  if (blocks.repeats.empty())
    throw RunError(fmt::format("no block of {} is done yet", plan.path.string()),
                   "millrace sweep --status " + shell_word(plan.path.string()));
  SweepIdentities identities(question);
  for (const std::uint64_t repeat : blocks.repeats) require_planned(plan, identities, repeat + 1);
  SweepRunner runner(plan.path, question, identities);
  for (const auto& [cell, reason] : blocks.refusals) runner.refuse(cell, reason);
  Json json = heading_of(question);
  json["repeats"] = blocks.repeats.size();
  json["blocks"] = {{"planned", plan.size()}, {"collected", std::move(blocks.where)}};
  study::SweepDesign design = question.design;
  if (!plan.note.empty()) design.notes.push_back(plan.note);
  if (blocks.repeats.size() < plan.size())
    design.notes.push_back(
        fmt::format("{} of {} blocks are done", blocks.repeats.size(), plan.size()));
  write_design(plan.path, arguments, question.ops);  // with the metric that was asked for
  publish(study::sweep_table(std::move(design), runner.records(blocks.repeats), question.metrics,
                             question.margins(), study::kConfidence, runner.refusals()),
          std::move(json), plan.path, arguments.wide);
  return ending_of(runner, question, "a block whose folder is removed can be run again");
}

Exit run_one_block(const SweepArguments& arguments) {
  const Planned sweep = open_planned(arguments);
  SweepIdentities identities(sweep.question);
  run_block(sweep.plan, sweep.question, identities, sweep.plan.number_of(*arguments.block),
            patience_of(arguments));
  return Exit::done;
}

/// Runs the blocks that nobody has run or is running, then collects all.
Exit run_rest(SweepArguments arguments) {
  if (!arguments.recipe.empty() || arguments.repeats)
    throw UsageError(fmt::format("{} is planned: --resume takes no other design", arguments.run),
                     "millrace sweep RUN --plan --repeats N adds blocks");
  const Planned sweep = open_planned(arguments);
  SweepIdentities identities(sweep.question);
  for (std::uint64_t block = 1; block <= sweep.plan.size(); ++block) {
    try {
      run_block(sweep.plan, sweep.question, identities, block, patience_of(arguments));
    } catch (const BlockTaken& taken) {
      say(taken.what());
    }
  }
  arguments.run = sweep.plan.path.string();  // this process has entered another folder
  return collect(arguments);
}

Exit show_status(const SweepArguments& arguments) {
  const SweepPlan plan = read_plan(named_run(arguments));
  print_states(plan, block_states(plan, patience_of(arguments)));
  return Exit::done;
}

Exit submit(const SweepArguments& arguments) {
  require_slurm();
  const bool is_there = arguments.recipe.size() == 1 && is_planned(arguments.recipe[0]);
  const SweepPlan plan =
      is_there && !arguments.repeats ? open_planned(arguments).plan : plan_blocks(arguments);
  const std::string job =
      submit_blocks(plan, {arguments.partition, arguments.time}, patience_of(arguments));
  if (job.empty())
    say(fmt::format("nothing to submit: every block of {} is done, running or queued",
                    plan.path.string()));
  if (verbosity().json)
    print("{}\n", study::to_text(Json{{"command", "sweep"},
                                      {"run", plan.path.string()},
                                      {"job", job.empty() ? Json() : Json(job)}},
                                 2));
  else
    print("{}\n", plan.path.string());
  return Exit::done;
}

Exit sweep(const SweepArguments& arguments) {
  if (arguments.block) return run_one_block(arguments);
  if (arguments.collect) return collect(arguments);
  if (arguments.status) return show_status(arguments);
  if (arguments.on) return submit(arguments);
  if (!arguments.partition.empty() || !arguments.time.empty())
    throw UsageError("--partition and --time belong to --on slurm", "leave them out");
  if (arguments.plan) return plan_sweep(arguments);
  if (arguments.resume && !arguments.run.empty() && is_planned(arguments.run))
    return run_rest(arguments);
  return run_here(arguments);
}

/// Adds the options of planned sweeps.
void add_block_options(CLI::App& command, SweepArguments& arguments) {
  command.add_flag("--plan", arguments.plan,
                   "only prepare the directory, for --block, --on or --resume; prints its path");
  auto* const block = command
                          .add_option("--block", arguments.block,
                                      "run block K (from 1) of the planned sweep RUN, each "
                                      "combination once; any number of hosts "
                                      "may do so at the same time")
                          ->type_name("K");
  auto* const collect =
      command.add_flag("--collect", arguments.collect,
                       "write the index and the table of the blocks of RUN that are done");
  auto* const status = command.add_flag("--status", arguments.status,
                                        "show which blocks of RUN are queued, running, done or "
                                        "failed");
  auto* const on =
      command
          .add_option("--on", arguments.on, "slurm: submit the blocks as an array job, and return")
          ->check(CLI::IsMember({"slurm"}));
  command.add_option("--partition", arguments.partition, "with --on slurm: sbatch's --partition");
  command.add_option("--time", arguments.time,
                     "with --on slurm: sbatch's --time, the limit of one block");
  command
      .add_option("--patience", arguments.patience_s,
                  "seconds without a heartbeat after which a claimed block counts as abandoned "
                  "(default: 30)")
      ->check(CLI::Range(1.0, 86400.0));
  block->excludes(collect)->excludes(status)->excludes(on);
  collect->excludes(status)->excludes(on);
  status->excludes(on);
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
