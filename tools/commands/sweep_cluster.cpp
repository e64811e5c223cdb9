// Asks squeue and sbatch, and reads the blocks' logs.
#include "tools/commands/sweep_cluster.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/record_file.h"
#include "millrace/error.h"
#include "study/records/run_directory.h"
#include "study/records/run_files.h"
#include "study/records/signature.h"
#include "tools/launch/launch.h"
#include "tools/terminal/terminal.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using EntryKind = study::BlockEntry::Kind;
using study::Pulse;

constexpr const char* kJobsFile = "slurm.json";
constexpr double kTimeout = 60;  ///< seconds that a command of Slurm may take

/// Output of a command of Slurm.
struct Answer {
  int exit_code = 0;
  std::string out;
  std::string problem;  ///< its last line on stderr, if it failed
};

Answer ask(const std::vector<std::string>& words) {
  std::string folder = (fs::temp_directory_path() / "millrace-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr)
    throw RunError(fmt::format("{} cannot be made", folder), "check TMPDIR");
  const fs::path out = fs::path(folder) / "out", err = fs::path(folder) / "err";
  const CommandEnd end = run_command(
      {.words = words, .folder = folder, .out = out, .err = err, .timeout_s = kTimeout});
  Answer answer{end.timed_out ? 1 : end.exit_code, base::read_record(out), {}};
  std::istringstream lines(base::read_record(err));
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) answer.problem = line;
  if (const std::string prefix = words[0] + ": error: "; answer.problem.starts_with(prefix))
    answer.problem.erase(0, prefix.size());
  if (end.timed_out) answer.problem = fmt::format("no answer within {:g} s", kTimeout);
  if (answer.exit_code != 0 && answer.problem.empty())
    answer.problem = fmt::format("exit code {}", answer.exit_code);
  std::error_code error;
  fs::remove_all(folder, error);
  return answer;
}

/// Returns the array jobs that were submitted for the sweep.
std::vector<std::string> jobs_of(const SweepPlan& plan) {
  const fs::path file = plan.path / kJobsFile;
  std::ifstream in = base::open_record(file);
  if (!in) return {};
  const Json json = study::parse_json(base::read_record(in, file));
  const auto is_job = [](const Json& job) {
    return job.is_string() && !job.get<std::string>().empty() &&
           job.get<std::string>().find_first_not_of("0123456789_") == std::string::npos;
  };
  if (!json.is_array() || !std::all_of(json.begin(), json.end(), is_job))
    throw DataError(fmt::format("{} is damaged: it is not a list of Slurm's jobs", file.string()),
                    "remove it once none of the sweep's jobs is queued");
  return json;
}

/// Tasks of the sweep's jobs that Slurm still has: by block, the task's name and state.
using Queue = std::map<std::uint64_t, std::pair<std::string, std::string>>;

Queue queue_of(const SweepPlan& plan, std::string& note) {
  const auto jobs = jobs_of(plan);
  const std::set<std::string> ours(jobs.begin(), jobs.end());
  if (ours.empty()) return {};
  if (!program_exists("squeue", plan.path)) {
    note = "squeue: command not found; blocks that are queued are shown as open or failed";
    return {};
  }
  // Jobs that have ended are unknown to squeue before long, so none is named here.
  const Answer answer = ask({"squeue", "--me", "--all", "--noheader", "--array", "--format=%i %T"});
  if (answer.exit_code != 0) {
    note = answer.problem + "; blocks that are queued are shown as open or failed";
    return {};
  }
  Queue queue;
  std::istringstream lines(answer.out);
  std::string name, state;
  while (lines >> name >> state) {
    const auto line = name.find('_');
    if (line == std::string::npos || !ours.contains(name.substr(0, line))) continue;
    const std::uint64_t block = std::strtoull(name.c_str() + line + 1, nullptr, 10);
    queue[block] = {name, state};
  }
  return queue;
}

/// Returns the state that the block's log shows; `seen` is what was seen of an open claim.
BlockState logged_state(std::uint64_t block, const std::vector<study::BlockEntry>& entries,
                        const study::Observation& seen) {
  BlockState state{.block = block, .state = "open", .host = {}, .attempts = 0, .detail = {}};
  if (entries.empty()) return state;
  const study::BlockEntry& last = entries.back();
  state.host = last.owner.host;
  state.attempts = static_cast<int>(
      std::count_if(entries.begin(), entries.end(),
                    [](const study::BlockEntry& one) { return one.kind == EntryKind::claim; }));
  if (last.kind == EntryKind::result) {
    state.state = "done";
  } else if (last.kind == EntryKind::failure) {
    state.state = "failed";
    state.detail = study::text_at(last.all, {"reason"});
  } else if (seen.pulse == Pulse::beating) {
    state.state = "running";
    state.detail = last.owner.text();
  } else {
    state.state = "failed";
    state.detail = last.owner.text() +
                   (seen.pulse == Pulse::left
                        ? " could not publish its complete runs: run it again to publish them"
                    : seen.pulse == Pulse::gone
                        ? " has ended without a result"
                        : fmt::format(": no heartbeat for {:g} s",
                                      std::chrono::duration<double>(seen.patience).count()));
  }
  return state;
}

/// Returns a path as sbatch's --output takes it, which replaces words like %j.
std::string escaped(const std::string& path) {
  std::string text;
  for (const char c : path) text += c == '%' ? "%%" : std::string(1, c);
  return text;
}

}  // namespace

std::size_t SweepStates::count(const std::string& state) const {
  return static_cast<std::size_t>(std::count_if(
      blocks.begin(), blocks.end(), [&](const BlockState& one) { return one.state == state; }));
}

SweepStates block_states(const SweepPlan& plan, std::chrono::milliseconds patience) {
  SweepStates states;
  const Queue queue = queue_of(plan, states.note);
  std::vector<std::vector<study::BlockEntry>> logs;
  std::vector<std::future<study::Observation>> pulses(plan.size());
  for (std::uint64_t block = 1; block <= plan.size(); ++block) {
    logs.push_back(plan.log(block).entries());
    if (!logs.back().empty() && logs.back().back().kind == EntryKind::claim)
      pulses[block - 1] = std::async(
          std::launch::async, [log = plan.log(block), claim = logs.back().back(), patience] {
            return log.watch(claim, patience, [] { return !interrupted(); });
          });
  }
  for (std::uint64_t block = 1; block <= plan.size(); ++block) {
    auto& pulse = pulses[block - 1];
    auto& entries = logs[block - 1];
    const bool watched = pulse.valid();
    study::Observation seen = watched ? pulse.get() : study::Observation{Pulse::gone};
    // A claimant that has since exited may have published its result.
    if (watched && seen.pulse != Pulse::beating)
      if (auto now = plan.log(block).entries(); now.size() > entries.size()) {
        entries = std::move(now);
        seen.pulse = Pulse::beating;  // of the host that has claimed the block since
      }
    BlockState state = logged_state(block, entries, seen);
    const auto task = queue.find(block);
    const bool is_its_own = task != queue.end() && !entries.empty() &&
                            entries.back().owner.job == task->second.first &&
                            task->second.second != "PENDING";
    if (task != queue.end() && !is_its_own && state.state != "done" && state.state != "running") {
      state.state = "queued";
      state.detail = fmt::format("job {}: {}", task->second.first, task->second.second);
    }
    states.blocks.push_back(std::move(state));
  }
  return states;
}

void print_states(const SweepPlan& plan, const SweepStates& states) {
  if (verbosity().json) {
    Json json{{"command", "sweep"}, {"run", plan.path.string()}, {"blocks", Json::array()}};
    for (const BlockState& one : states.blocks)
      json["blocks"].push_back({{"block", one.block},
                                {"state", one.state},
                                {"host", one.host.empty() ? Json() : Json(one.host)},
                                {"attempts", one.attempts},
                                {"detail", one.detail}});
    json["note"] = states.note;
    print("{}\n", study::to_text(json, 2));
    return;
  }
  std::vector<std::vector<std::string>> rows{{"block", "state", "attempts", "host"}};
  for (const BlockState& one : states.blocks)
    rows.push_back({std::to_string(one.block), one.state, std::to_string(one.attempts),
                    one.host.empty() ? "-" : one.host});
  std::istringstream table(to_table(std::move(rows)));
  std::string line;
  for (std::size_t row = 0; std::getline(table, line); ++row) {
    const bool has_detail = row > 0 && !states.blocks[row - 1].detail.empty();
    print("{}\n", has_detail ? line + "  " + states.blocks[row - 1].detail : line);
  }
  std::string summary;
  for (const char* state : {"done", "running", "queued", "failed", "open"})
    if (const std::size_t count = states.count(state); count > 0)
      summary += fmt::format("{}{} {}", summary.empty() ? "" : ", ", count, state);
  print("\n{} blocks: {}\n", plan.size(), summary);
  if (!states.note.empty()) say(states.note);
}

std::string ranges(const std::vector<std::uint64_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    text += (text.empty() ? "" : ",") + std::to_string(numbers[i]);
    if (end > i + 1) text += "-" + std::to_string(numbers[end - 1]);
    i = end;
  }
  return text;
}

void require_slurm() {
  if (program_exists("sbatch", fs::current_path())) return;
  throw UsageError("--on slurm: sbatch: command not found",
                   "run this on a login node of the cluster, or start the blocks by other means: "
                   "millrace sweep RUN --block K");
}

std::string submit_blocks(const SweepPlan& plan, const SlurmOptions& options,
                          std::chrono::milliseconds patience) {
  std::vector<std::uint64_t> blocks;
  const SweepStates states = block_states(plan, patience);
  if (interrupted()) throw Error(Exit::interrupted, "interrupted before anything was submitted");
  if (!states.note.empty())  // blocks that are queued would be submitted again
    throw RunError("the queue is not known: " + states.note, "try again once squeue answers");
  for (const BlockState& one : states.blocks)
    if (one.state == "open" || one.state == "failed") blocks.push_back(one.block);
  if (blocks.empty()) return {};
  std::error_code error;
  const std::string program = fs::read_symlink("/proc/self/exe", error).string();
  const std::string run = plan.path.string();
  std::vector<std::string> words{
      "sbatch",
      "--parsable",
      "--array=" + ranges(blocks),
      "--nodes=1",
      "--ntasks=1",
      "--exclusive",  // no other job disturbs the measurements
      "--mem=0",
      "--job-name=" + plan.path.filename().string(),
      "--chdir=" + plan.folder,
      "--output=" + escaped((plan.path / "blocks").string()) + "/slurm-%A_%a.log"};
  if (!options.partition.empty()) words.push_back("--partition=" + options.partition);
  if (!options.time.empty()) words.push_back("--time=" + options.time);
  words.push_back(fmt::format(
      "--wrap=exec {} sweep {} --block \"$SLURM_ARRAY_TASK_ID\" --patience {:g}",
      shell_word(program), shell_word(run), std::chrono::duration<double>(patience).count()));
  study::share_run_key_with_children();  // sbatch passes the environment on to the jobs
  const Answer answer = ask(words);
  if (answer.exit_code != 0)
    throw UsageError(fmt::format("sbatch refuses the job: {}", answer.problem),
                     "--partition and --time choose where and how long; sbatch also takes the "
                     "environment's SBATCH_ACCOUNT, SBATCH_QOS and others");
  std::string job = answer.out.substr(0, answer.out.find_first_of(";\n"));
  Json jobs = jobs_of(plan);
  jobs.push_back(job);
  study::write_file(plan.path / kJobsFile, study::to_text(jobs, 2) + "\n");
  say(fmt::format("job {}: blocks {} of {}", job, ranges(blocks), plan.size()));
  return job;
}

}  // namespace millrace::tools
