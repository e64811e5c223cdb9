// Plans, skips and runs a sweep's processes.
#include "tools/commands/sweep_runner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>

#include "base/atomic_file.h"
#include "base/clock.h"
#include "millrace/error.h"
#include "tools/launch/child.h"
#include "tools/terminal/console.h"
#include "tools/terminal/interrupt.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

double now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Returns the last part of a key: loader.workers becomes workers.
std::string short_key(const std::string& key) {
  const auto dot = key.rfind('.');
  return dot == std::string::npos ? key : key.substr(dot + 1);
}

}  // namespace

SweepRunner::SweepRunner(fs::path sweep, const study::SweepDesign& design, std::string recipe_name,
                         std::vector<Recipe> recipes)
    : sweep_(std::move(sweep)),
      design_(design),
      recipe_name_(std::move(recipe_name)),
      recipes_(std::move(recipes)),
      index_(sweep_),
      session_(fmt::format("{:.0f}-{}", now_s(), getpid())) {
  fs::create_directories(runs());
  base::remove_stale_temporaries(sweep_);
  base::remove_stale_temporaries(runs());
  for (const std::string& name : index_.unfinished()) {
    std::error_code error;
    fs::remove_all(runs() / name, error);
    fs::remove(runs() / (name + ".log"), error);
    fs::remove(runs() / (name + ".json"), error);
  }
  index_.refresh();
  next_number_ = index_.largest_number() + 1;
}

void SweepRunner::plan(std::uint64_t repeats) {
  for (std::uint64_t repeat = planned_.size(); repeat < repeats; ++repeat) {
    auto& identities = identities_.emplace_back();
    auto& keys = planned_.emplace_back();
    for (const Recipe& recipe : recipes_) {
      study::RunIdentity one =
          keys_.identity(recipe, static_cast<std::uint64_t>(recipe.integer("seed")) + repeat);
      one.copy = copies_[one.key()]++;
      keys.push_back(one.key());
      identities.push_back(std::move(one));
    }
  }
}

std::size_t SweepRunner::finished(std::uint64_t repeats) {
  plan(repeats);
  std::size_t count = 0;
  for (std::uint64_t repeat = 0; repeat < repeats; ++repeat)
    for (const auto& key : planned_[repeat]) count += index_.find(key) ? 1 : 0;
  return count;
}

std::size_t SweepRunner::strangers(std::uint64_t repeats) {
  return index_.finished() - finished(repeats);
}

std::string SweepRunner::label(const study::SweepRun& run) const {
  std::string name;
  const study::SweepCell& cell = design_.cells[run.cell];
  for (std::size_t i = 0; i < cell.labels.size() && design_.columns[0] != "run"; ++i) {
    const std::string key =
        design_.columns[i] == "combination" ? "" : short_key(design_.columns[i]) + "=";
    name += (name.empty() ? "" : ",") + key + cell.labels[i];
  }
  for (char& c : name)
    if (c == '/' || c == ' ' || static_cast<unsigned char>(c) < 0x20) c = '_';
  if (name.size() > 120) name.resize(120);
  return fmt::format("{}r{}", name.empty() ? "" : name + "-", run.repeat + 1);
}

void SweepRunner::run(std::uint64_t repeats) {
  plan(repeats);
  const auto order = study::interleaved(recipes_.size(), repeats,
                                        static_cast<std::uint64_t>(recipes_[0].integer("seed")));
  std::size_t done = finished(repeats);
  for (const study::SweepRun& run : order) {
    if (index_.find(planned_[run.repeat][run.cell])) continue;
    run_one(run, ++done, order.size());
  }
}

void SweepRunner::run_one(const study::SweepRun& run, std::size_t done, std::size_t all) {
  const study::RunIdentity& identity = identities_[run.repeat][run.cell];
  const std::string name = label(run);
  study::SweepRecord record{.name = fmt::format("{:03}-{}", next_number_++, name),
                            .key = planned_[run.repeat][run.cell],
                            .binary = identity.binary,
                            .data = identity.data,
                            .session = session_,
                            .overrides = design_.cells[run.cell].overrides,
                            .repeat = run.repeat,
                            .seed = identity.seed,
                            .begun = now_s(),
                            .ended = std::nan(""),
                            .noise = {},
                            .finished = false,
                            .figures = {}};
  record.noise = study::noise_between({}, {}, 0);
  const fs::path folder = runs() / record.name;
  fs::path log = folder;
  log += ".log";
  study::write_record(runs(), record);

  ProgressLine line;
  if (line.due()) line.show(static_cast<double>(done - 1), static_cast<double>(all), name);
  std::vector<std::string> child{"train"};
  if (!recipe_name_.empty()) child.push_back(recipe_name_);
  child.insert(child.end(), record.overrides.begin(), record.overrides.end());
  child.insert(child.end(), {"model.ops=" + recipes_[run.cell].text("model.ops"),
                             fmt::format("seed={}", identity.seed), "--run", folder.string()});
  const study::MachineSample before = study::sample_machine();
  const double own = static_cast<double>(base::Clock::process_cpu_ns()) * 1e-9;
  const ChildResult result = run_child(child, log);
  const double own_s = static_cast<double>(base::Clock::process_cpu_ns()) * 1e-9 - own;
  line.clear();
  if (interrupted())
    throw Error(Exit::interrupted, fmt::format("interrupted after {} of {} runs", done - 1, all),
                "continue with: millrace sweep --resume --run " + sweep_.string());
  record.ended = now_s();
  record.noise = study::noise_between(before, study::sample_machine(), own_s + result.cpu_s);
  study::write_record(runs(), record);
  if (result.exit_code != 0)
    throw Error(
        static_cast<Exit>(result.exit_code >= 1 && result.exit_code <= 4 ? result.exit_code : 1),
        fmt::format("{}: {}", name, result.last_line), "its messages are in " + log.string());
  index_.refresh();
  const auto finished = index_.find(record.key);
  if (!finished)
    throw RunError(fmt::format("{}: the run ended without a summary", name),
                   "its messages are in " + log.string());
  const study::SweepFigures& f = finished->figures;
  say(fmt::format("[{}/{}] {}: load {:.3f} ms, update {:.3f} ms per step, {} images/s", done, all,
                  name, 1e3 * f.load_s_per_step, 1e3 * f.update_s_per_step,
                  with_commas(f.images_per_s)));
}

std::vector<std::vector<study::SweepRecord>> SweepRunner::records(std::uint64_t repeats) const {
  std::vector<std::vector<study::SweepRecord>> records(recipes_.size());
  for (std::uint64_t repeat = 0; repeat < repeats; ++repeat)
    for (std::size_t cell = 0; cell < recipes_.size(); ++cell)
      records[cell].push_back(index_.find(planned_[repeat][cell]).value());
  return records;
}

}  // namespace millrace::tools
