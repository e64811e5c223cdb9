// Starts the children of a profile and reads their records.
#include "tools/commands/profile_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

#include "base/clock.h"
#include "millrace/error.h"
#include "study/analysis/interference.h"
#include "study/analysis/whatif.h"
#include "study/records/step_table.h"
#include "tools/launch/child.h"
#include "tools/terminal/interrupt.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

RunFigures figures_of(const fs::path& file, const RunLength& length) {
  RunFigures figures;
  std::int64_t images = 0, window_images = 0;
  double load = 0, update = 0, log = 0, window_s = 0;
  std::vector<double> rates, times;
  std::uint64_t steps = 0;
  study::for_each_step(file, [&](const study::StepSum& step) {
    if (step.last <= length.warm_up) return;
    ++steps;
    images += step.images;
    const double load_s = static_cast<double>(step.load_ns()) * 1e-9;
    const double update_s = static_cast<double>(step.update_ns()) * 1e-9;
    load += load_s;
    update += update_s;
    log += static_cast<double>(step.ns[static_cast<std::size_t>(pipeline::Span::log)]) * 1e-9;
    times.push_back(load_s + update_s);
    window_images += step.images;
    window_s += times.back();
    if (steps % length.window == 0 && window_s > 0)
      rates.push_back(static_cast<double>(std::exchange(window_images, 0)) /
                      std::exchange(window_s, 0));
  });
  if (steps == 0 || load + update <= 0)
    throw RunError(fmt::format("{}: no steps to count", file.string()));
  const auto count = static_cast<double>(steps);
  constexpr std::size_t kEnoughWindows = 5;
  figures.images_per_s = rates.size() >= kEnoughWindows
                             ? study::middle_of(std::move(rates))
                             : static_cast<double>(images) / (load + update);
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
                             "train.epochs=1000000", "eval.every=0",
                             "train.early_stopping.metric=off", "--run", folder.string()});
  fs::create_directories(folder_);
  fs::path log = folder;
  log += ".log";
  const study::MachineSample before = study::sample_machine();
  const std::int64_t own = base::Clock::process_cpu_ns();
  const ChildResult result = run_child(child, log);
  const double own_s = static_cast<double>(base::Clock::process_cpu_ns() - own) * 1e-9;
  const study::Noise noise =
      study::noise_between(before, study::sample_machine(), own_s + result.cpu_s);
  if (interrupted())
    throw Error(Exit::interrupted, fmt::format("interrupted in run {}", started_),
                "the measurements so far are in " + folder_.string());
  if (result.exit_code != 0)
    throw Error(
        static_cast<Exit>(result.exit_code >= 1 && result.exit_code <= 4 ? result.exit_code : 1),
        fmt::format("{}: {}", name, result.last_line), "its messages are in " + log.string());
  RunFigures figures = figures_of(folder / "steps.csv", length);
  figures.others = std::min(noise.others + noise.steal, 1.0);
  std::ifstream in(folder / "summary.json");
  figures.summary = nlohmann::ordered_json::parse(in, nullptr, false);
  if (figures.summary.is_discarded())
    throw RunError((folder / "summary.json").string() + " is not a summary");
  return figures;
}

}  // namespace millrace::tools
