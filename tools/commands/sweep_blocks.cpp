// Planned sweeps: --plan, --block, --collect, --status, --on, and --resume of one.
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "study/records/run_directory.h"
#include "study/records/run_links.h"
#include "tools/commands/commands.h"
#include "tools/commands/design_file.h"
#include "tools/commands/sweep.h"
#include "tools/commands/sweep_cluster.h"
#include "tools/commands/sweep_plan.h"
#include "tools/terminal/terminal.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// A planned sweep, and what it asks.
struct Planned {
  SweepPlan plan;
  SweepArguments arguments;
  Question question;
};

/// Returns the directory that the arguments name, as RUN or by --run, and leaves the other words.
fs::path take_run(SweepArguments& arguments) {
  if (!arguments.run.empty()) return arguments.run;
  if (arguments.recipe.size() == 1) {
    fs::path run = arguments.recipe[0];
    arguments.recipe.clear();
    return run;
  }
  throw UsageError("name one directory of a planned sweep", "millrace sweep RUN --block K");
}

UsageError two_designs(const fs::path& run) {
  return UsageError(fmt::format("{} is planned: it takes no other design", run.string()),
                    "millrace sweep RUN --plan --repeats N adds blocks");
}

/// Enters the folder in which the sweep was planned, where its relative paths begin. A stranger's
/// plan chooses no folder: the words that repeat the sweep begin here.
void enter(const SweepPlan& plan) {
  if (!plan.is_ours) return;
  std::error_code error;
  fs::current_path(plan.folder, error);
  if (error)
    throw UsageError(fmt::format("{}, where {} was planned, cannot be entered: {}", plan.folder,
                                 plan.path.string(), error.message()),
                     "every host needs it under this path");
}

Planned open_planned(SweepArguments arguments) {
  SweepPlan plan = read_plan(take_run(arguments));
  if (plan.is_ours && arguments.says_what()) throw two_designs(plan.path);
  take_study(arguments);
  arguments.run = plan.path.string();
  arguments.resume = true;
  study::refuse_links_outside(plan.path);
  enter(plan);
  require_same_program(plan);
  Planned sweep{std::move(plan), std::move(arguments), {}};
  find_resumed(sweep.arguments);
  sweep.question = question_of(sweep.arguments, ops_at(sweep.plan.path));
  return sweep;
}

std::chrono::milliseconds patience_of(const SweepArguments& arguments) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * arguments.patience_s));
}

/// Returns whether the arguments name a planned sweep: as RUN, or one that may be a stranger's by
/// --run before the words that repeat it.
bool names_plan(const SweepArguments& arguments) {
  if (arguments.run.empty()) return arguments.recipe.size() == 1 && is_planned(arguments.recipe[0]);
  return is_planned(arguments.run) && !read_plan(arguments.run).is_ours;
}

/// Returns the plan that the arguments name. Signs one that may be a stranger's if the command line
/// repeats it, so that jobs and later calls may run it.
SweepPlan own_plan(const SweepArguments& arguments) {
  Planned sweep = open_planned(arguments);
  if (sweep.plan.is_ours) return std::move(sweep.plan);
  SweepIdentities identities(sweep.question);
  require_planned(sweep.plan, identities, sweep.plan.size());
  write_design(sweep.plan.path, sweep.arguments, sweep.question.ops);
  return write_plan(sweep.plan.path, identities, sweep.plan.size(), sweep.plan.note);
}

/// Makes a plan, or adds blocks to one.
SweepPlan plan_blocks(SweepArguments arguments) {
  if (names_plan(arguments)) {
    arguments.run = own_plan(arguments).path.string();
    arguments.recipe.clear();
    arguments.cells.clear();
    arguments.command.reset();  // the record has the words, signed by now
    arguments.resume = true;
  }
  arguments.plan = true;
  const PreparedSweep ready = prepare_sweep(arguments);
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
  Json json = heading_of_sweep(question);
  json["repeats"] = blocks.repeats.size();
  json["blocks"] = {{"planned", plan.size()}, {"collected", std::move(blocks.where)}};
  study::SweepDesign design = question.design;
  if (!plan.note.empty()) design.notes.push_back(plan.note);
  if (blocks.repeats.size() < plan.size())
    design.notes.push_back(
        fmt::format("{} of {} blocks are done", blocks.repeats.size(), plan.size()));
  write_design(plan.path, arguments, question.ops);  // with the metric that was asked for
  publish_sweep(
      study::sweep_table(std::move(design), runner.records(blocks.repeats), question.metrics,
                         question.rules(), study::kConfidence, runner.refusals()),
      std::move(json), plan.path, arguments.wide);
  return ending_of_sweep(runner, question, "a block whose folder is removed can be run again");
}

Exit run_one_block(const SweepArguments& arguments) {
  const Planned sweep = open_planned(arguments);
  SweepIdentities identities(sweep.question);
  run_block(sweep.plan, sweep.question, identities, sweep.plan.number_of(*arguments.block),
            patience_of(arguments));
  return Exit::done;
}

/// Runs the blocks that have not been run and are not running, then collects all.
Exit run_rest(SweepArguments arguments) {
  if (arguments.repeats) throw two_designs(arguments.run);
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

Exit show_status(SweepArguments arguments) {
  const SweepPlan plan = read_plan(take_run(arguments));
  if (!arguments.recipe.empty()) throw two_designs(plan.path);
  print_states(plan, block_states(plan, patience_of(arguments)));
  return Exit::done;
}

Exit submit(const SweepArguments& arguments) {
  require_slurm();
  const SweepPlan plan =
      names_plan(arguments) && !arguments.repeats ? own_plan(arguments) : plan_blocks(arguments);
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

}  // namespace

bool is_of_planned_sweep(const SweepArguments& arguments) {
  return arguments.block || arguments.collect || arguments.status || arguments.on ||
         arguments.plan || !arguments.partition.empty() || !arguments.time.empty() ||
         (arguments.resume && !arguments.run.empty() && is_planned(arguments.run));
}

Exit run_planned_sweep(const SweepArguments& arguments) {
  if (arguments.block) return run_one_block(arguments);
  if (arguments.collect) return collect(arguments);
  if (arguments.status) return show_status(arguments);
  if (arguments.on) return submit(arguments);
  if (!arguments.partition.empty() || !arguments.time.empty())
    throw UsageError("--partition and --time belong to --on slurm", "leave them out");
  if (arguments.plan) return plan_sweep(arguments);
  return run_rest(arguments);
}

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

}  // namespace millrace::tools
