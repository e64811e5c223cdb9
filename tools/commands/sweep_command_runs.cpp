// Executes a sweep's command and collects its figures.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <thread>

#include "base/open_file.h"
#include "base/record_file.h"
#include "millrace/error.h"
#include "pipeline/readers/shard_index.h"
#include "tools/commands/sweep.h"
#include "tools/launch/launch.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;
using MetricKind = study::CommandMetric::Kind;

constexpr int kNotFound = 127;  ///< a shell's exit code for a command that it cannot find

std::string last_line_of(const fs::path& file) {
  std::ifstream in = base::open_record(file);
  std::string last;
  for (std::string line; base::read_line(in, line, file);)
    if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
  if (const auto end = last.find_last_not_of(" \t\r"); end != std::string::npos)
    last.erase(end + 1);
  return last.substr(last.rfind('\r') == std::string::npos ? 0 : last.rfind('\r') + 1);
}

/// Returns a stamp that changes when a file is written; nothing if there is no such file.
std::optional<pipeline::FileStamp> stamp_of(const fs::path& file) {
  if (std::error_code error; !fs::is_regular_file(file, error)) return {};
  const base::OpenFile open = base::open_regular(file.string());
  return pipeline::stamp_of(open.descriptor.get(), file.string());
}

/// Says how a command ended that did not end well.
std::string failure_text(const CommandEnd& end, double timeout_s, const fs::path& err) {
  std::string text = end.timed_out ? fmt::format("timed out after {:g} s", timeout_s)
                     : end.exit_code > 128 && end.exit_code < 128 + 65
                         ? fmt::format("ended by signal {} ({})", end.exit_code - 128,
                                       strsignal(end.exit_code - 128))
                         : fmt::format("exit code {}", end.exit_code);
  const std::string last = last_line_of(err);
  return last.empty() ? text : text + ": " + last;
}

bool lies_in(const fs::path& file, const fs::path& folder) {
  const std::string path = fs::absolute(file).lexically_normal().string();
  return path.starts_with(fs::absolute(folder).lexically_normal().string() + "/");
}

}  // namespace

CommandRuns::CommandRuns(const study::SweepCommand& command, const fs::path& runs)
    : command_(command), runs_(fs::absolute(runs)) {}

study::RunIdentity CommandRuns::identity(const study::SweepCell& cell, std::uint64_t repeat) const {
  study::PlaceholderValues values = study::values_of(cell);
  values.insert({{"run", "{run}"}, {"repeat", "{repeat}"}});
  return {
      fmt::format("{}\nin {}", fmt::join(study::words_of(command_, values), "\n"), command_.folder),
      "command", "", repeat, 0};
}

study::PlaceholderValues CommandRuns::values(const study::SweepCell& cell,
                                             const study::SweepRecord& record) const {
  study::PlaceholderValues values = study::values_of(cell);
  values.insert({{"run", study::command_folder(runs_, record.name).string()},
                 {"repeat", std::to_string(record.repeat)}});
  return values;
}

fs::path CommandRuns::file_of(const study::CommandMetric& metric,
                              const study::PlaceholderValues& values) const {
  return fs::path(command_.folder) / study::filled(metric.file, values);
}

ChildResult CommandRuns::run(const study::SweepCell& cell, study::SweepRecord& record,
                             const std::function<void()>& meanwhile) const {
  const study::PlaceholderValues mine = values(cell, record);
  const fs::path folder = runs_ / record.name;
  fs::create_directories(study::command_folder(runs_, record.name));
  std::map<std::string, std::optional<pipeline::FileStamp>> stamps;
  for (const auto& metric : command_.metrics) {
    if (metric.kind != MetricKind::file) continue;
    const auto& stamp = stamps[metric.file] = stamp_of(file_of(metric, mine));
    // A file that the last run has just written may be written again within a tick of its clock.
    if (stamp) pipeline::wait_until_settled(*stamp);
  }
  const CommandEnd end = run_command({.words = study::words_of(command_, mine),
                                      .folder = command_.folder,
                                      .out = folder / "stdout.txt",
                                      .err = folder / "stderr.txt",
                                      .timeout_s = command_.timeout_s},
                                     meanwhile);
  if (end.start_error != 0)
    throw UsageError(fmt::format("{}: cannot be executed: {}", study::words_of(command_, mine)[0],
                                 std::strerror(end.start_error)),
                     "check the command and its folder, " + command_.folder);
  ChildResult result{end.timed_out && end.exit_code == 0 ? 1 : end.exit_code, end.cpu_s, ""};
  if (result.exit_code != 0) {
    result.last_line = failure_text(end, command_.timeout_s, folder / "stderr.txt");
    if (end.exit_code == kNotFound && command_.shell != "none" && !end.timed_out)
      throw UsageError(fmt::format("command not found: {}", last_line_of(folder / "stderr.txt")),
                       "the shell's exit code 127; try the command by itself");
    return result;
  }
  study::CommandFigures figures{end.wall_s, double(std::thread::hardware_concurrency()), {}};
  for (const auto& metric : command_.metrics) {
    if (metric.kind != MetricKind::output && metric.kind != MetricKind::file) continue;
    if (metric.kind == MetricKind::file && stamp_of(file_of(metric, mine)) == stamps[metric.file])
      continue;  // of an earlier run
    double value = 0;
    try {
      value = metric.kind == MetricKind::output
                  ? study::number_in_output(metric, folder / "stdout.txt", folder / "stderr.txt")
                  : study::number_in_file(metric, file_of(metric, mine));
    } catch (const UsageError&) {
      continue;  // complete() throws it, after the run has been recorded
    }
    if (!std::isfinite(value))
      return {1, end.cpu_s, fmt::format("{} is {}", metric.metric.name, value)};
    figures.metrics[metric.metric.name] = value;
  }
  record.command = std::move(figures);
  return result;
}

void CommandRuns::complete(const study::SweepCell& cell, study::SweepRecord& record) const {
  const fs::path folder = runs_ / record.name;
  for (const auto& metric : command_.metrics) {
    const std::string& name = metric.metric.name;
    if (std::isfinite(record.figure(name)) || name == "speedup") continue;
    if (metric.kind == MetricKind::output) {
      record.more[name] =
          study::number_in_output(metric, folder / "stdout.txt", folder / "stderr.txt");
      continue;
    }
    if (metric.kind == MetricKind::summary)
      throw UsageError(
          fmt::format("--metric {}: {} has no such number", name,
                      (study::command_folder(runs_, record.name) / "summary.json").string()),
          "pymillrace watch --run {run} -- python train.py leaves it, unless the script is cut "
          "off; or give a "
          "regular expression with (a group), or FILE.json:KEY");
    const fs::path file = file_of(metric, values(cell, record));
    if (fs::exists(file) && !lies_in(file, folder))
      throw UsageError(
          fmt::format("--metric '{}': {} has not written {}", name, record.name, file.string()),
          "write it below {run}, which is a folder of each run");
    record.more[name] = study::number_in_file(metric, file);
  }
}

std::string CommandRuns::figures_text(const study::SweepRecord& record) const {
  std::string text = fmt::format("{:.3f} s", record.figure("wall_s"));
  for (const auto& metric : command_.metrics)
    if (metric.kind != MetricKind::wall && metric.metric.name != "speedup")
      text += fmt::format(", {} = {:g}", metric.metric.name, record.figure(metric.metric.name));
  return text;
}

}  // namespace millrace::tools
