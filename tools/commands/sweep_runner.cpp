// Plans, skips and runs a sweep's processes.

#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <set>
#include <string_view>

#include "base/atomic_file.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "millrace/error.h"
#include "recipe/recipe_file.h"
#include "study/sweep/sweep_pace.h"
#include "study/sweep/sweep_table.h"
#include "tools/commands/sweep.h"
#include "tools/terminal/terminal.h"
#include "tools/training/setup.h"

namespace millrace::tools {

// Hashes the program, its libraries and data sets.

namespace {

namespace fs = std::filesystem;

/// Returns the program and the files that it loads from beside it: lib/*.so and lib/plugins/*.so.
std::set<fs::path> program_files() {
  std::set<fs::path> files;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  files.insert(program);
  for (const auto& folder : {program.parent_path() / "lib", program.parent_path() / "lib/plugins",
                             program.parent_path().parent_path() / "lib"}) {
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      const std::string name = entry.path().filename().string();
      const bool ours = folder.filename() == "plugins" || name.find("millrace") != name.npos;
      if (ours && entry.path().extension() == ".so" && entry.is_regular_file(error))
        files.insert(entry.path());
    }
  }
  for (const study::PluginRecord& plugin : plugin_records())
    if (plugin.file) files.insert(*plugin.file);
  return files;
}

std::string hash_of(const std::set<fs::path>& files) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  XXH3_128bits_reset(state.get());
  std::vector<char> buffer(1 << 20);
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    if (!in) throw RunError(fmt::format("{} cannot be read", file.string()));
    while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), in.gcount() > 0)
      XXH3_128bits_update(state.get(), buffer.data(), static_cast<std::size_t>(in.gcount()));
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

SweepKeys::SweepKeys() : binary_(hash_of(program_files())) {}

study::RunIdentity SweepKeys::identity(const Recipe& recipe, std::uint64_t seed) {
  Recipe plain = recipe;
  // The seed is a separate part of the identity, and the sweep's own keys do not change its runs.
  for (const char* same : {"seed=0", "sweep.margin=1", "sweep.share_margin=1",
                           "sweep.most_repeats=5", "sweep.folds=0"})
    plain.set(same);
  return {plain.to_toml(), binary_, fingerprints(recipe), seed, 0};
}

std::string SweepKeys::fingerprints(const Recipe& recipe) {
  std::string choice = recipe.text("train.device") + "\n" + recipe.value("model.classes") + "\n" +
                       recipe.value("eval.split");
  for (const Param& key : recipe_keys())
    if (key.name.starts_with("data.")) choice += "\n" + recipe.value(key.name);
  std::string& known = fingerprints_[choice];
  if (!known.empty()) return known;
  const auto train = open_data(recipe, recipe.text("data.split"));
  std::string text = fmt::format("{:016x}", train->info().fingerprint);
  if (is_evaluated(recipe))
    text += fmt::format(" {:016x}",
                        open_data(recipe, recipe.text("eval.split"), train->info().classes.size())
                            ->info()
                            .fingerprint);
  return known = text;
}

SweepIdentities::SweepIdentities(const Question& question) : question_(question) {
  if (!question.command) keys_.emplace();
}

void SweepIdentities::plan(std::uint64_t repeats) {
  for (std::uint64_t repeat = planned_.size(); repeat < repeats; ++repeat) {
    auto& identities = identities_.emplace_back();
    auto& keys = planned_.emplace_back();
    for (std::size_t cell = 0; cell < question_.recipes.size(); ++cell) {
      const auto& recipe = question_.recipes[cell];
      keys.emplace_back();
      study::RunIdentity& one = identities.emplace_back();
      if (!recipe) continue;
      one =
          question_.command
              ? CommandRuns(*question_.command, ".").identity(question_.design.cells[cell], repeat)
              : keys_->identity(question_.recipe_of(cell, repeat),
                                static_cast<std::uint64_t>(recipe->integer("seed")) + repeat);
      one.copy = copies_[one.key()]++;
      keys.back() = one.key();
    }
  }
}

const study::RunIdentity& SweepIdentities::of(const study::SweepRun& run) const {
  return identities_.at(run.repeat).at(run.cell);
}

const std::string& SweepIdentities::key(const study::SweepRun& run) const {
  return planned_.at(run.repeat).at(run.cell);
}

std::string SweepIdentities::block(std::uint64_t repeat) const {
  std::string text;
  for (const std::string& key : planned_.at(repeat)) text += key + "\n";
  return base::checksum(text);
}

namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

/// Shows how far the sweep is: a bar on a terminal, else a line per minute.
class SweepRunner::Progress {
 public:
  Progress(std::size_t done, std::vector<std::size_t> left)
      : done_(done),
        all_(std::accumulate(left.begin(), left.end(), done)),
        pace_(std::move(left)),
        begun_(now_s()) {}

  /// Notes that a run begins; returns its number.
  std::size_t begin(std::size_t cell, const std::string& name) {
    cell_ = cell;
    name_ = name;
    run_begun_ = now_s();
    if (bar_.due()) bar_.show(static_cast<double>(done_), static_cast<double>(all_), text());
    return done_ + 1;
  }
  /// Called often during a run.
  void tick() {
    if (bar_.due())
      bar_.show(static_cast<double>(done_), static_cast<double>(all_), name_ + ": " + text());
    else if (isatty(STDERR_FILENO) == 0 && minutes_.is_due(now_s() - begun_))
      say(name_ + ": " + text());
  }
  void end() {
    bar_.clear();
    ++done_;
    pace_.finished(cell_, now_s() - run_begun_);
  }
  /// Notes that the run, and with it its row, was refused.
  void end_refused() {
    bar_.clear();
    all_ -= pace_.drop(cell_);
  }
  std::size_t all() const { return all_; }

 private:
  std::string text() const {
    return study::progress_text(done_, all_, now_s() - begun_,
                                pace_.remaining_s(cell_, now_s() - run_begun_));
  }

  std::size_t done_;
  std::size_t all_;
  study::SweepPace pace_;
  double begun_;
  double run_begun_ = 0;
  std::size_t cell_ = 0;
  std::string name_;
  ProgressLine bar_;
  study::EachMinute minutes_;
};

SweepRunner::SweepRunner(fs::path sweep, const Question& question, SweepIdentities& identities,
                         std::optional<BlockAttempt> attempt)
    : sweep_(std::move(sweep)),
      question_(question),
      refusals_(question.refusals),
      identities_(identities),
      index_(sweep_, !attempt),
      session_(fmt::format("{:.0f}-{}", now_s(), getpid())) {
  if (question_.command) commands_.emplace(*question_.command, runs());
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
  if (!attempt) return;
  next_number_ = std::max(next_number_, attempt->first_number);
  meanwhile_ = std::move(attempt->meanwhile);
}

std::size_t SweepRunner::planned(std::uint64_t repeats) const {
  const auto cells = std::count_if(question_.recipes.begin(), question_.recipes.end(),
                                   [](const auto& recipe) { return recipe.has_value(); });
  return static_cast<std::size_t>(cells) * repeats;
}

std::size_t SweepRunner::finished(std::uint64_t repeats) {
  identities_.plan(repeats);
  std::size_t count = 0;
  for (std::uint64_t repeat = 0; repeat < repeats; ++repeat)
    for (std::size_t cell = 0; cell < question_.recipes.size(); ++cell)
      count += index_.find(identities_.key({cell, repeat})) ? 1 : 0;
  return count;
}

std::size_t SweepRunner::unplanned_runs(std::uint64_t repeats) {
  return index_.finished() - finished(repeats);
}

std::string SweepRunner::label(const study::SweepRun& run) const {
  std::string name;
  const study::SweepDesign& design = question_.design;
  const study::SweepCell& cell = design.cells[run.cell];
  const auto keys = study::short_names(design.columns);
  const bool plain = question_.is_study || keys[0] == "combination";
  for (std::size_t i = 0; i < cell.labels.size() && keys[0] != "run"; ++i)
    name += (name.empty() ? "" : ",") + (plain ? "" : keys[i] + "=") + cell.labels[i];
  // The folder of a command's run stands in its text, where a shell would read other characters.
  constexpr std::string_view kPlain = "_.,=+-";
  for (char& c : name)
    if (c == '/' || c == ' ' || static_cast<unsigned char>(c) < 0x20 ||
        (commands_ && std::isalnum(static_cast<unsigned char>(c)) == 0 &&
         kPlain.find(c) == kPlain.npos))
      c = '_';
  if (name.size() > 120) name.resize(120);
  return fmt::format("{}r{}", name.empty() ? "" : name + "-", run.repeat + 1);
}

bool SweepRunner::is_left(const study::SweepRun& run) const {
  return refusals_[run.cell].empty() && !index_.find(identities_.key(run));
}

void SweepRunner::run(std::uint64_t repeats, std::uint64_t first) {
  identities_.plan(repeats);
  auto order = study::interleaved(question_.recipes.size(), repeats,
                                  static_cast<std::uint64_t>(question_.first().integer("seed")));
  std::erase_if(order, [&](const study::SweepRun& run) { return run.repeat < first; });
  std::vector<std::size_t> left(question_.recipes.size());
  std::size_t done = 0;
  for (const study::SweepRun& run : order) {
    if (is_left(run)) ++left[run.cell];
    done += index_.find(identities_.key(run)) ? 1 : 0;
  }
  Progress progress(done, std::move(left));
  for (const study::SweepRun& run : order)
    if (is_left(run)) run_one(run, progress);
  if (commands_ && std::none_of(refusals_.begin(), refusals_.end(),
                                [](const std::string& text) { return text.empty(); }))
    throw RunError(fmt::format("every combination failed; the first: {}", refusals_.front()),
                   "the runs' output is in " + runs().string());
}

std::vector<std::string> SweepRunner::command_of(const study::SweepRun& run,
                                                 const study::SweepRecord& record) const {
  std::vector<std::string> command{"train"};
  const bool own_recipe =
      !record.overrides.empty() && !recipe::is_override(record.overrides.front());
  if (!question_.recipe_name.empty() && !own_recipe) command.push_back(question_.recipe_name);
  command.insert(command.end(), record.overrides.begin(), record.overrides.end());
  const Recipe recipe = question_.recipe_of(run.cell, run.repeat);
  if (question_.rules().folds > 0) command.push_back("data.fold=" + recipe.text("data.fold"));
  command.insert(command.end(),
                 {"model.ops=" + recipe.text("model.ops"), fmt::format("seed={}", record.seed),
                  "--run", (runs() / record.name).string()});
  return command;
}

study::SweepRecord SweepRunner::with_figures(std::size_t cell, study::SweepRecord record) const {
  study::add_figures(runs(), record, study::figure_names(question_.design, question_.metrics));
  if (commands_) {
    commands_->complete(question_.design.cells[cell], record);
    return record;
  }
  for (const study::SweepMetric& metric : question_.metrics)
    if (!question_.is_study && metric.name != "speedup" &&
        !std::isfinite(record.figure(metric.name)))
      throw UsageError(
          fmt::format("--metric {}: {} has no such number", metric.name,
                      (runs() / record.name / "summary.json").string()),
          "accuracies need a model (not train.device=simulated); choose a number that it has");
  return record;
}

ChildResult SweepRunner::execute(const study::SweepRun& run, study::SweepRecord& record,
                                 const fs::path& log, Progress& progress) const {
  const auto meanwhile = [&] {
    progress.tick();
    if (meanwhile_) meanwhile_();
  };
  return commands_ ? commands_->run(question_.design.cells[run.cell], record, meanwhile)
                   : run_child(command_of(run, record), log, meanwhile);
}

bool SweepRunner::is_refusal(const ChildResult& result) const {
  if (commands_) return result.exit_code != 0;
  return question_.is_study && (result.exit_code == static_cast<int>(Exit::usage) ||
                                result.exit_code == static_cast<int>(Exit::device));
}

void SweepRunner::run_one(const study::SweepRun& run, Progress& progress) {
  const study::RunIdentity& identity = identities_.of(run);
  const std::string name = label(run);
  study::SweepRecord record{.name = fmt::format("{:03}-{}", next_number_++, name),
                            .key = identities_.key(run),
                            .binary = identity.binary,
                            .data = identity.data,
                            .session = session_,
                            .overrides = question_.design.cells[run.cell].overrides,
                            .repeat = run.repeat,
                            .seed = identity.seed,
                            .begun = now_s(),
                            .ended = std::nan(""),
                            .noise = {},
                            .finished = false,
                            .figures = {},
                            .cpu_s = std::nan("")};
  record.noise = study::noise_between({}, {}, 0);
  fs::path log = runs() / record.name;
  log += ".log";
  study::write_record(runs(), record);

  const std::size_t number = progress.begin(run.cell, name);
  const study::MachineSample before = study::sample_machine();
  const double own = static_cast<double>(base::Clock::process_cpu_ns()) * 1e-9;
  const ChildResult result = execute(run, record, log, progress);
  const double own_s = static_cast<double>(base::Clock::process_cpu_ns()) * 1e-9 - own;
  const bool is_refused = is_refusal(result);
  is_refused ? progress.end_refused() : progress.end();
  if (interrupted())
    throw Error(Exit::interrupted,
                fmt::format("interrupted after {} of {} runs", number - 1, progress.all()),
                "continue with: millrace sweep --resume --run " + sweep_.string());
  record.ended = now_s();
  record.cpu_s = result.cpu_s;
  record.noise = study::noise_between(before, study::sample_machine(), own_s + result.cpu_s);
  study::write_record(runs(), record);
  if (is_refused) {
    refusals_[run.cell] = result.last_line;
    say(fmt::format("{}: {}: {}", name, commands_ ? "failed" : "not run", result.last_line));
    return;
  }
  if (result.exit_code != 0)
    throw Error(
        static_cast<Exit>(result.exit_code >= 1 && result.exit_code <= 4 ? result.exit_code : 1),
        fmt::format("{}: {}", name, result.last_line), "its messages are in " + log.string());
  index_.refresh();
  const auto finished = index_.find(record.key);
  if (!finished)
    throw RunError(fmt::format("{}: the run ended without a summary", name),
                   "its messages are in " + log.string());
  const study::SweepRecord complete = with_figures(run.cell, *finished);
  if (commands_) {
    say(fmt::format("[{}/{}] {}: {}", number, progress.all(), name,
                    commands_->figures_text(complete)));
    return;
  }
  const study::SweepFigures& f = finished->figures;
  say(fmt::format("[{}/{}] {}: load {:.3f} ms, update {:.3f} ms per step, {} images/s", number,
                  progress.all(), name, 1e3 * f.load_s_per_step, 1e3 * f.update_s_per_step,
                  with_commas(f.images_per_s)));
}

std::vector<std::vector<study::SweepRecord>> SweepRunner::records(std::uint64_t repeats) const {
  std::vector<std::uint64_t> blocks(repeats);
  std::iota(blocks.begin(), blocks.end(), 0);
  return records(blocks);
}

std::vector<std::vector<study::SweepRecord>> SweepRunner::records(
    std::span<const std::uint64_t> blocks) const {
  std::vector<std::vector<study::SweepRecord>> records(question_.recipes.size());
  for (const std::uint64_t repeat : blocks)
    for (std::size_t cell = 0; cell < records.size(); ++cell) {
      if (!refusals_[cell].empty()) continue;
      auto finished = index_.find(identities_.key({cell, repeat}));
      if (!finished)
        throw RunError(fmt::format("block {} lacks its run of {}", repeat + 1,
                                   question_.design.cells[cell].labels[0]),
                       "remove the block's folder in blocks/ to have it run again");
      records[cell].push_back(with_figures(cell, std::move(*finished)));
    }
  return records;
}

void SweepRunner::refuse(std::size_t cell, const std::string& reason) {
  if (refusals_[cell].empty()) refusals_[cell] = reason;
}

}  // namespace millrace::tools
