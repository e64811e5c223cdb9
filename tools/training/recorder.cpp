// Hashes batches, writes traces, and passes the trainer's events to the run's files and the
// progress line.

#include <fmt/format.h>
#include <xxhash.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "base/number_text.h"
#include "millrace/error.h"
#include "strategies/trainer/checkpoint.h"
#include "study/records/trace_file.h"
#include "study/records/wait_records.h"
#include "tools/terminal/terminal.h"
#include "tools/training/records.h"

namespace millrace::tools {

// Feeds batches to xxh3.

void BatchHash::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

BatchHash::BatchHash() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state_.get());
}

void BatchHash::add(const Batch& batch) {
  XXH3_64bits_update(state_.get(), batch.data(), batch.bytes());
  const auto count = static_cast<std::size_t>(batch.count());
  XXH3_64bits_update(state_.get(), batch.labels(), count * sizeof(std::int64_t));
  if (batch.classes() > 0)
    XXH3_64bits_update(state_.get(), batch.probabilities(),
                       count * static_cast<std::size_t>(batch.classes()) * sizeof(float));
  if (!batch.masks().empty())
    XXH3_64bits_update(state_.get(), batch.masks().data(), batch.masks().size());
  const Objects& objects = batch.objects();
  if (objects.offsets.size() == 1) return;  // the data set marks none
  const auto add = [this](const auto& values, std::size_t size) {
    XXH3_64bits_update(state_.get(), values.data(), size * sizeof values[0]);
  };
  add(objects.offsets, count + 1);
  add(objects.boxes, objects.boxes.size());
  add(objects.classes, objects.classes.size());
  add(objects.key_points, objects.key_points.size());
  add(objects.masks, objects.masks.size());
}

std::string BatchHash::digest() const {
  return fmt::format("{:016x}", XXH3_64bits_digest(state_.get()));
}

// Collects and writes the trace of --trace.

void TraceArgument::add_to(CLI::App& command) {
  command.add_option("--trace", file_, "write a timeline for ui.perfetto.dev to FILE.json")
      ->type_name("FILE.json");
}

std::unique_ptr<measure::Timeline> TraceArgument::start(const ProgramStart& start) const {
  if (file_.empty()) return nullptr;
  if (!file_.ends_with(".json"))
    throw UsageError(fmt::format("--trace {}: the file name must end in .json", file_),
                     "give --trace FILE.json");
  return std::make_unique<measure::Timeline>(start.time.ticks, start.time.steady_ns);
}

void TraceArgument::finish(const measure::Timeline& timeline, const std::string& device,
                           int rank) const {
  std::filesystem::path file = file_;
  if (rank > 0) file.replace_extension(fmt::format(".rank{}.json", rank));
  std::error_code ignored;  // write_trace() reports a folder that cannot be made
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), ignored);
  study::write_trace(timeline, {"millrace", device}, file);
  say(fmt::format("timeline: {}{}", file.string(),
                  timeline.left_out() > 0
                      ? fmt::format(" ({} later records did not fit)", timeline.left_out())
                      : ""));
}

// Passes the trainer's events to the run's files and the progress line.

namespace {

/// Returns whether the loss of an epoch's step, counted from 1, is printed: every `every` steps
/// from the epoch's second on, because with train.clock=async the first loss is not there yet.
bool is_logged(std::uint64_t step_in_epoch, std::uint64_t every) {
  constexpr std::uint64_t kFirst = 2;
  return every > 0 && step_in_epoch % every == kFirst % every;
}

}  // namespace

Recorder::Recorder(study::RunDirectory& directory, const Recipe& recipe, const DatasetInfo& dataset,
                   bool hash, train::TrainingState& state, const train::Position& from,
                   bool first_rank)
    : directory_(directory),
      recipe_(recipe),
      dataset_(dataset),
      state_(state),
      steps_(from.steps),
      first_rank_(first_rank) {
  if (hash) hash_.emplace();
  // A resumed run writes the line of an open epoch again, at its last step.
  if (first_rank && recipe.boolean("train.tensorboard"))
    events_.emplace(directory.path(), from.epoch_open() ? from.steps : from.steps + 1);
}

void Recorder::batch(const Batch& batch, base::Clock::Ticks load) {
  breakdown_.add(batch.history(), load);
  if (hash_) hash_->add(batch);
}

const measure::WaitBreakdown& Recorder::blame(const measure::SpanTicks& spans) {
  breakdown_.complete(train::load_of(spans));
  return breakdown_;
}

void Recorder::progress(const train::TrainProgress& now) {
  writer_.check();
  steps_ = now.step;
  const auto every = static_cast<std::uint64_t>(recipe_.integer("train.log_every"));
  if (verbosity().verbose && is_logged(now.step_in_epoch, every)) {
    line_.clear();
    say(fmt::format("epoch {} step {}/{}{}", now.epoch, now.step_in_epoch, now.steps_in_epoch,
                    now.loss ? fmt::format(" loss {:.4f}", *now.loss) : ""));
  }
  if (!line_.due()) return;
  const measure::SpanSeconds seconds(*now.ticks);
  const double busy = seconds.load + seconds.update;
  const double passed = busy - busy_before_;
  const double rate = passed > 0 ? static_cast<double>(now.images) / passed : 0;
  const double left = rate > 0 ? passed / static_cast<double>(now.step_in_epoch) *
                                     static_cast<double>(now.steps_in_epoch - now.step_in_epoch)
                               : 0;
  line_.show(
      static_cast<double>(now.step_in_epoch), static_cast<double>(now.steps_in_epoch),
      fmt::format("epoch {}/{} step {}/{}  {} images/s{}  load {:.0f}%  {:.0f} s left", now.epoch,
                  recipe_.integer("train.epochs"), now.step_in_epoch, now.steps_in_epoch,
                  with_commas(rate), now.loss ? fmt::format("  loss {:.4f}", *now.loss) : "",
                  busy > 0 ? 100 * seconds.load / busy : 0, left));
}

void Recorder::step(const measure::StepRecord& record) {
  updates_.add(record);
  directory_.step(record);
  if (!events_ || !record.loss) return;
  const study::Scalar loss{"train/step_loss", *record.loss};
  events_->scalars(record.step, {&loss, 1});
}

void Recorder::epoch(const train::EpochRecord& record) {
  epochs_load_ += train::load_of(record.ticks);
  breakdown_.complete(epochs_load_);
  const measure::PartSeconds parts =
      measure::seconds_since(breakdown_, std::exchange(blamed_before_, breakdown_.ticks()));
  if (!first_rank_) return;
  line_.clear();
  auto line = epoch_line(record, dataset_);
  line["blame"] = study::to_json(study::by_part(parts));
  line["step"] = steps_;
  directory_.epoch(line);
  if (events_) {
    events_->scalars(steps_, epoch_scalars(line));
    events_->flush();
  }
  const measure::SpanSeconds seconds(record.ticks);
  busy_before_ += seconds.load + seconds.update;
  const double busy = std::max(seconds.load + seconds.update, 1e-12);
  std::string text =
      fmt::format("epoch {}/{}  {:.2f} s  load {:.3f} s ({})  update {:.3f} s  {} images/s",
                  record.epoch, recipe_.integer("train.epochs"), seconds.total(), seconds.load,
                  base::percent(seconds.load / busy, 1), seconds.update,
                  with_commas(static_cast<double>(record.new_images) / busy));
  if (line["train_loss"].is_number())
    text += fmt::format("  loss {:.4f}", number_in(line, "train_loss"));
  if (line["train_top1"].is_number())
    text += fmt::format("  train top-1 {:.2f}%", 100 * number_in(line, "train_top1"));
  if (line.contains("top1"))
    text += fmt::format("  test loss {:.4f}  top-1 {:.2f}%", number_in(line, "test_loss"),
                        100 * number_in(line, "top1"));
  say(text);
}

void Recorder::close() {
  if (events_) events_->flush();
  directory_.close();
}

void Recorder::checkpoint(const train::Position& position, const measure::StepRecord& open,
                          bool best) {
  if (state_.parameter_count() == 0 || !recipe_.boolean("train.checkpoints")) return;
  writer_.wait();  // its copy is the memory for the next one
  const auto delay =
      std::chrono::duration<double, std::milli>(recipe_.number("debug.checkpoint_ms"));
  if (!first_rank_) {
    writer_.start([this, delay, steps = position.steps, rows = directory_.begin_open_step(open)] {
      if (delay.count() > 0) std::this_thread::sleep_for(delay);
      rows();
      state_.announce_records(steps);
    });
    state_.snapshot();  // the ranks' part of rank 0's copy
    return;
  }
  if (events_) events_->flush();
  const train::CheckpointOptions options{
      .best = best, .keep = static_cast<int>(recipe_.integer("train.checkpoint_keep"))};
  // A checkpoint needs the rows of its steps: both parts of the job keep their order.
  writer_.start([this, delay, options, position, run = directory_.path(),
                 rows = directory_.begin_open_step(open), write = state_.snapshot()] {
    rows();
    train::write_checkpoint(run, position.steps, options, [&](const std::filesystem::path& folder) {
      write(folder);
      if (delay.count() > 0) std::this_thread::sleep_for(delay);
      save_position(position, folder);
      state_.wait_for_records(position.steps);
    });
  });
}

study::CheckpointsRecord Recorder::checkpoints() const {
  return {writer_.writes(), writer_.seconds()};
}

}  // namespace millrace::tools
