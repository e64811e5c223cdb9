// Starts the children of a profile and reads their records.
#include "tools/commands/profile_runs.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include "base/clock.h"
#include "millrace/error.h"
#include "study/analysis/whatif.h"
#include "tools/launch/child.h"
#include "tools/terminal/interrupt.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

double children_cpu_s() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Returns the machine's busy CPU seconds; stolen time counts as busy.
double machine_busy_s() {
  std::ifstream in("/proc/stat");
  std::string cpu;
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  in >> cpu >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
  return (user + nice + system + irq + softirq + steal) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

RunFigures read_steps(const fs::path& file, const RunLength& length) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  std::map<std::string, std::size_t> column;
  {
    std::istringstream names(line);
    for (std::string name; std::getline(names, name, ',');) column.emplace(name, column.size());
  }
  RunFigures figures;
  double images = 0, load = 0, update = 0, log = 0;
  double window_images = 0, window_s = 0;
  std::vector<double> rates, times;
  std::uint64_t steps = 0;
  while (std::getline(in, line)) {
    std::vector<std::string> cells;
    std::istringstream text(line);
    for (std::string cell; std::getline(text, cell, ',');) cells.push_back(cell);
    const auto number = [&](const char* name) {
      const auto found = column.find(name);
      return found != column.end() && found->second < cells.size()
                 ? std::strtod(cells[found->second].c_str(), nullptr)
                 : 0;
    };
    if (number("step") <= static_cast<double>(length.warm_up)) continue;
    ++steps;
    images += number("images");
    load += number("load_s");
    update += number("update_s");
    log += number("log");
    times.push_back(number("load_s") + number("update_s"));
    window_images += number("images");
    window_s += times.back();
    if (steps % length.window == 0 && window_s > 0)
      rates.push_back(std::exchange(window_images, 0) / std::exchange(window_s, 0));
  }
  if (steps == 0 || load + update <= 0)
    throw RunError(fmt::format("{}: no steps to count", file.string()));
  const auto count = static_cast<double>(steps);
  constexpr std::size_t kEnoughWindows = 5;
  figures.images_per_s = rates.size() >= kEnoughWindows ? study::middle_of(std::move(rates))
                                                        : images / (load + update);
  figures.step_s = study::middle_of(std::move(times));
  figures.load_s = load / count;
  figures.update_s = update / count;
  figures.log_s = log / count;
  return figures;
}

}  // namespace

RunLength run_length(double step_s, double seconds, int prefetch, std::uint64_t batches_per_epoch) {
  RunLength length;
  length.warm_up = static_cast<std::uint64_t>(std::max(8, prefetch + 2));
  length.steps =
      static_cast<std::uint64_t>(std::clamp(seconds / std::max(step_s, 1e-9), 16.0, 100'000.0));
  if (batches_per_epoch <= 2 * length.steps)
    length.steps = (length.steps + batches_per_epoch - 1) / batches_per_epoch * batches_per_epoch;
  length.window = std::max<std::uint64_t>(length.window, 4 * static_cast<std::uint64_t>(prefetch));
  if (batches_per_epoch <= 2 * length.window)
    length.window = (length.window + batches_per_epoch - 1) / batches_per_epoch * batches_per_epoch;
  return length;
}

ChildRuns::ChildRuns(std::vector<std::string> recipe, fs::path folder)
    : recipe_(std::move(recipe)), folder_(std::move(folder)) {}

RunFigures ChildRuns::run(const std::string& name, const std::vector<std::string>& overrides,
                          const RunLength& length) {
  std::string label = name;
  for (char& c : label)
    if (c == '/' || c == ' ' || static_cast<unsigned char>(c) < 0x20) c = '_';
  if (label.size() > 100) label.resize(100);
  const fs::path folder = folder_ / fmt::format("{:03}-{}", ++started_, label);
  std::vector<std::string> child{"train"};
  child.insert(child.end(), recipe_.begin(), recipe_.end());
  child.insert(child.end(), overrides.begin(), overrides.end());
  child.insert(child.end(), {fmt::format("train.steps={}", length.warm_up + length.steps),
                             "train.epochs=1000000", "eval.every=0", "--run", folder.string()});
  fs::create_directories(folder_);
  fs::path log = folder;
  log += ".log";
  const double cpu = children_cpu_s();
  const double busy = machine_busy_s();
  const std::int64_t begin = base::Clock::steady_ns();
  const ChildResult result = run_child(child, log);
  const double wall = static_cast<double>(base::Clock::steady_ns() - begin) * 1e-9;
  if (interrupted())
    throw Error(Exit::interrupted, fmt::format("interrupted in run {}", started_),
                "the measurements so far are in " + folder_.string());
  if (result.exit_code != 0)
    throw Error(
        static_cast<Exit>(result.exit_code >= 1 && result.exit_code <= 4 ? result.exit_code : 1),
        fmt::format("{}: {}", name, result.last_line), "its messages are in " + log.string());
  RunFigures figures = read_steps(folder / "steps.csv", length);
  const double others = machine_busy_s() - busy - (children_cpu_s() - cpu);
  figures.others =
      std::clamp(others / (wall * static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN))), 0.0, 1.0);
  std::ifstream in(folder / "summary.json");
  figures.summary = nlohmann::ordered_json::parse(in, nullptr, false);
  if (figures.summary.is_discarded())
    throw RunError((folder / "summary.json").string() + " is not a summary");
  return figures;
}

}  // namespace millrace::tools
