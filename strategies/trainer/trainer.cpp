// Runs epochs and steps, and hands records to the observer.
#include "strategies/trainer/trainer.h"

#include <algorithm>
#include <ctime>
#include <exception>
#include <limits>
#include <numeric>
#include <utility>

namespace millrace::train {
namespace {

/// Adds an artificial delay. The deadline is absolute, so that the time asleep is as configured.
void plant(double seconds) {
  if (seconds <= 0) return;
  const std::int64_t until = base::Clock::steady_ns() + static_cast<std::int64_t>(seconds * 1e9);
  const timespec time{until / 1'000'000'000, until % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) != 0) {
  }
}

}  // namespace

double top1_of(const Evaluation& evaluation) {
  if (evaluation.images == 0) return std::numeric_limits<double>::quiet_NaN();
  const std::uint64_t correct =
      std::accumulate(evaluation.correct.begin(), evaluation.correct.end(), std::uint64_t{0});
  return static_cast<double>(correct) / static_cast<double>(evaluation.images);
}

measure::SpanTicks difference(const measure::SpanTicks& end, const measure::SpanTicks& begin) {
  measure::SpanTicks ticks;
  for (std::size_t i = 0; i < measure::kSpanCount; ++i) ticks[i] = end[i] - begin[i];
  return ticks;
}

base::Clock::Ticks load_of(const measure::SpanTicks& ticks) {
  base::Clock::Ticks load = 0;
  for (std::size_t i = 0; i < measure::kSpanCount; ++i)
    if (measure::is_load(static_cast<measure::Span>(i))) load += ticks[i];
  return load;
}

Trainer::Trainer(Loader& loader, Strategy& strategy, TrainObserver& observer,
                 measure::SpanClock& spans, TrainOptions options,
                 std::function<std::unique_ptr<Loader>()> make_eval_loader,
                 const std::atomic<bool>& stop)
    : loader_(loader),
      strategy_(strategy),
      observer_(observer),
      spans_(spans),
      options_(std::move(options)),
      make_eval_loader_(std::move(make_eval_loader)),
      stop_(stop),
      steps_in_epoch_(loader.batches_per_epoch()),
      all_steps_(options_.steps > 0 ? std::min(options_.steps, options_.epochs * steps_in_epoch_)
                                    : options_.epochs * steps_in_epoch_),
      schedule_(options_.schedule, options_.epochs * rounded_up(steps_in_epoch_),
                rounded_up(steps_in_epoch_)),
      position_(options_.from),
      timeline_(std::in_place, spans) {}

std::uint64_t Trainer::rounded_up(std::uint64_t steps) const {
  return (steps + options_.accumulate - 1) / options_.accumulate;
}

std::uint64_t Trainer::updates(std::uint64_t steps) const {
  if (steps_in_epoch_ == 0) return 0;
  return steps / steps_in_epoch_ * rounded_up(steps_in_epoch_) +
         rounded_up(steps % steps_in_epoch_);
}

void Trainer::run() {
  try {
    run_epochs();
  } catch (...) {
    try {
      finish_checkpoint();
    } catch (const std::exception&) {  // the first error is the one to report
    }
    throw;
  }
  finish_checkpoint();
}

void Trainer::run_epochs() {
  result_ = {};
  result_.steps = position_.steps;
  result_.images = position_.images;
  result_.epochs = steps_in_epoch_ > 0 ? result_.steps / steps_in_epoch_ : 0;
  result_.train_loss = std::numeric_limits<double>::quiet_NaN();
  result_.train_top1 = std::numeric_limits<double>::quiet_NaN();
  result_.stopping = position_.stopping;
  if (steps_in_epoch_ == 0) return;
  const std::uint64_t done = result_.steps % steps_in_epoch_;
  // An epoch that was left open is finished and evaluated first, also with a smaller patience.
  result_.stopped_early = done == 0 && is_exhausted(position_.stopping, options_.stopping);
  if (position_.evaluation_due || (done > 0 && result_.steps == all_steps_)) {
    // The earlier run ended between its last step and the work at the epoch's end.
    spans_.enter(measure::Span::log);
    const std::uint64_t steps = done > 0 ? done : steps_in_epoch_;
    end_epoch(static_cast<std::uint32_t>((result_.steps - 1) / steps_in_epoch_ + 1), steps);
  }
  while (!result_.interrupted && !result_.stopped_early && result_.steps < all_steps_) {
    run_epoch();
  }
}

void Trainer::run_epoch() {
  const std::uint64_t epoch = result_.steps / steps_in_epoch_;
  const std::uint64_t begin = epoch * steps_in_epoch_;
  const std::uint64_t end = std::min(begin + steps_in_epoch_, all_steps_);
  const std::uint64_t before = result_.steps;
  while (result_.steps < end && train_step(static_cast<std::uint32_t>(epoch + 1))) {
  }
  result_.interrupted = result_.steps < end;
  if (result_.steps > before)
    end_epoch(static_cast<std::uint32_t>(epoch + 1), result_.steps - begin);
}

void Trainer::end_epoch(std::uint32_t epoch, std::uint64_t steps) {
  drain();
  position_.train_counts += strategy_.take_train_counts();
  const bool complete = steps == steps_in_epoch_;
  // A run resumed in the middle of an epoch repeats what follows here.
  if (!complete) checkpoint(/*best=*/false);
  EpochRecord record{epoch,
                     steps,
                     position_.epoch_images,
                     result_.new_images - std::exchange(images_before_epoch_, result_.new_images),
                     {},
                     position_.evaluation_due ? position_.train_loss : strategy_.take_train_loss(),
                     position_.evaluation_due ? position_.train_top1 : train_top1(),
                     place_of(result_.steps - 1).lr,
                     std::nullopt};
  result_.train_loss = record.train_loss;
  result_.train_top1 = record.train_top1;
  const bool due = options_.eval_every > 0 && epoch % options_.eval_every == 0;
  const bool last = result_.steps == all_steps_ || result_.stopped_early;
  bool best = false;
  if (!result_.interrupted && (due || last)) {
    record.evaluation = evaluate();
    position_.evaluation_due = complete && result_.interrupted;
    position_.train_loss = record.train_loss;
    position_.train_top1 = record.train_top1;
  }
  if (record.evaluation) {
    result_.evaluation = record.evaluation;
    const double top1 = top1_of(*record.evaluation);
    best = complete && top1 >= position_.best_top1;
    if (best) position_.best_top1 = top1;
    // Only evaluations that were due count, so that a run that is extended stops where it would
    // have stopped without its first end.
    if (complete && due) consider_stopping(epoch, *record.evaluation);
  }
  // Where a checkpoint cannot be written, no later epoch is recorded. After a complete epoch the
  // next checkpoint would wait for it anyway.
  finish_checkpoint();
  spans_.enter(measure::Span::log);
  record.ticks = difference(spans_.ticks(), epoch_since_);
  epoch_since_ = spans_.ticks();
  observer_.epoch(record);
  if (!complete) return;
  if (!position_.evaluation_due) position_.closed_images = std::exchange(position_.epoch_images, 0);
  position_.train_counts = {};
  checkpoint(best);
}

void Trainer::consider_stopping(std::uint32_t epoch, const Evaluation& evaluation) {
  if (!options_.stopping.on()) return;
  constexpr const char* kStop = "stop";
  position_.stopping = with_epoch(position_.stopping, options_.stopping, epoch, evaluation);
  result_.stopping = position_.stopping;
  const bool exhausted = is_exhausted(position_.stopping, options_.stopping);
  result_.stopped_early = strategy_.gather(exhausted ? kStop : "go on").front() == kStop;
}

double Trainer::train_top1() const {
  const TrainCounts& counts = position_.train_counts;
  // A checkpoint of an earlier version has no counts.
  if (counts.samples == 0 || counts.samples != position_.epoch_images)
    return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(counts.correct) / static_cast<double>(counts.samples);
}

StepContext Trainer::place_of(std::uint64_t step) const {
  const std::uint64_t begin = step / steps_in_epoch_ * steps_in_epoch_;  // first step of the epoch
  const std::uint64_t end = std::min(begin + steps_in_epoch_, all_steps_);
  const std::uint64_t first = begin + (step - begin) / options_.accumulate * options_.accumulate;
  const std::uint64_t last = std::min(first + options_.accumulate, end);
  const auto samples_before = [&](std::uint64_t steps) {
    return std::min(static_cast<std::int64_t>(steps - begin) * options_.batch,
                    static_cast<std::int64_t>(loader_.samples_per_epoch()));
  };
  return {.step = step,
          .window_samples = samples_before(last) - samples_before(first),
          .opens = step == first,
          .updates = step + 1 == last,
          .lr = schedule_.at(updates(first)),
          .stop = stop_.load(std::memory_order_relaxed)};
}

bool Trainer::train_step(std::uint32_t epoch) {
  strategy_.hold_at_most(loader_.slots() - 1, spans_);
  spans_.enter(std::exchange(first_, false) ? measure::Span::first_batch : measure::Span::load);
  begin_step(epoch, result_.steps + 1);
  plant(options_.delays.next);
  const StepContext place = place_of(result_.steps);
  Batch batch = place.opens && strategy_.stopping(place.stop) ? Batch() : loader_.next();
  if (!batch) {
    abandon_step();
    return false;
  }

  spans_.enter(measure::Span::log);
  observer_.batch(batch, load_of(difference(spans_.ticks(), open_since_)));
  spans_.enter(measure::Span::forward);
  plant(options_.delays.forward);
  result_.rank_images += static_cast<std::uint64_t>(batch.count());
  strategy_.step(std::move(batch), place, spans_);

  spans_.enter(measure::Span::log);
  plant(options_.delays.log);
  const std::int64_t samples = strategy_.last_samples();
  open_.images = samples;
  open_.set_up = strategy_.last_set_up();
  ++result_.steps;
  result_.images += static_cast<std::uint64_t>(samples);
  result_.new_images += static_cast<std::uint64_t>(samples);
  result_.epochs = result_.steps / steps_in_epoch_;
  position_.steps = result_.steps;
  position_.images = result_.images;
  position_.epoch_images += static_cast<std::uint64_t>(samples);
  collect();
  const std::uint64_t step_in_epoch = (result_.steps - 1) % steps_in_epoch_ + 1;
  observer_.progress({epoch, step_in_epoch, steps_in_epoch_, result_.steps, position_.epoch_images,
                      last_loss_, &spans_.ticks()});
  // An epoch's last step is always followed by a checkpoint.
  since_checkpoint_ += 1;
  if (options_.checkpoint_every > 0 && since_checkpoint_ >= options_.checkpoint_every &&
      place.updates && step_in_epoch < steps_in_epoch_ && result_.steps < all_steps_) {
    drain();
    position_.train_counts += strategy_.take_train_counts();
    checkpoint(/*best=*/false);
  }
  return true;
}

void Trainer::checkpoint(bool best) {
  spans_.enter(measure::Span::checkpoint);
  since_checkpoint_ = 0;
  measure::StepRecord open = open_;
  open.ticks = difference(spans_.ticks(), open_since_);
  observer_.checkpoint(position_, open, best);
}

void Trainer::finish_checkpoint() {
  spans_.enter(measure::Span::checkpoint);
  observer_.finish_checkpoint();
}

void Trainer::begin_step(std::uint32_t epoch, std::uint64_t step) {
  // The clock has just entered the wait for this step's batch: earlier time belongs to the previous
  // step.
  if (open_.step > 0) {
    open_.ticks = difference(spans_.ticks(), open_since_);
    ended_.push_back(open_);
    ended_since_ = open_since_;
    open_since_ = spans_.ticks();
  }
  open_ = {};
  open_.epoch = epoch;
  open_.step = step;
}

void Trainer::abandon_step() {
  // No batch came: the wait belongs to the previous step.
  open_ = {};
  open_since_ = ended_since_;
  if (ended_.empty()) return;
  open_ = ended_.back();
  ended_.pop_back();
}

void Trainer::collect() {
  for (const FinishedStep& finished : strategy_.take_finished()) {
    finished_steps_ = finished.step + 1;
    if (finished.loss) last_loss_ = finished.loss;
    measure::SetUp set_up = measure::SetUp::none;
    const auto complete = [&](measure::StepRecord& row) {
      if (row.step != finished_steps_) return;
      row.loss = finished.loss;
      set_up = row.set_up;
    };
    for (measure::StepRecord& row : ended_) complete(row);
    complete(open_);
    if (finished.end == 0) timeline_.reset();
    if (!timeline_) continue;
    if (options_.device_track != nullptr)
      options_.device_track->add({finished_steps_, finished.begin, finished.end});
    timed_ = true;
    timeline_->step(finished.begin, finished.end, set_up != measure::SetUp::none);
    if (finished.parts && set_up == measure::SetUp::none) timeline_->parts(*finished.parts);
  }
  while (!ended_.empty() && ended_.front().step <= finished_steps_) {
    observer_.step(ended_.front());
    ended_.pop_front();
  }
}

void Trainer::drain() {
  strategy_.drain(spans_);
  spans_.enter(measure::Span::log);
  collect();
}

void Trainer::close() {
  if (open_.step > result_.steps) abandon_step();  // begun, then ended by an exception
  for (const measure::StepRecord& row : ended_) observer_.step(row);
  ended_.clear();
  if (open_.step == 0) return;
  open_.ticks = difference(spans_.ticks(), open_since_);
  observer_.step(open_);
  open_ = {};
}

std::optional<DeviceTime> Trainer::device_time() {
  if (!timed_) return std::nullopt;
  return timeline_->until(spans_.since());
}

std::optional<Evaluation> Trainer::evaluate() {
  spans_.enter(measure::Span::evaluate);
  plant(options_.delays.evaluate);
  const std::unique_ptr<Loader> loader = make_eval_loader_();
  if (loader == nullptr) return std::nullopt;
  auto evaluation = strategy_.evaluate(*loader);
  if (evaluation && evaluation->images + evaluation->failed < loader->samples_per_epoch()) {
    result_.interrupted = true;  // incomplete, so not a result
    evaluation.reset();
  }
  return evaluation;
}

}  // namespace millrace::train
