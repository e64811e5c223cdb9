#include "strategies/trainer.h"

#include <ctime>
#include <limits>

namespace millrace {
namespace {

/// A planted delay: the deadline is absolute, so that time asleep is what was asked for.
void plant(double seconds) {
  if (seconds <= 0) return;
  const std::int64_t until = Clock::steady_ns() + static_cast<std::int64_t>(seconds * 1e9);
  const timespec time{until / 1'000'000'000, until % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) != 0) {
  }
}

}  // namespace

SpanTicks difference(const SpanTicks& end, const SpanTicks& begin) {
  SpanTicks ticks;
  for (std::size_t i = 0; i < kSpanCount; ++i) ticks[i] = end[i] - begin[i];
  return ticks;
}

Trainer::Trainer(Loader& loader, Strategy& strategy, TrainObserver& observer, SpanClock& spans,
                 TrainOptions options, std::function<std::unique_ptr<Loader>()> make_eval_loader,
                 const std::atomic<bool>& stop)
    : loader_(loader),
      strategy_(strategy),
      observer_(observer),
      spans_(spans),
      options_(options),
      make_eval_loader_(std::move(make_eval_loader)),
      stop_(stop) {}

void Trainer::run() {
  result_ = {};
  result_.train_loss = std::numeric_limits<double>::quiet_NaN();
  const std::uint64_t steps_in_epoch = loader_.batches_per_epoch();
  for (std::uint32_t epoch = 1; epoch <= options_.epochs; ++epoch) {
    std::uint64_t step = 0;
    epoch_images_ = 0;
    bool enough = false;
    while (step < steps_in_epoch && !enough) {
      if (!one_step(epoch, step + 1)) break;
      ++step;
      enough = options_.steps > 0 && result_.steps >= options_.steps;
    }
    result_.interrupted =
        stop_.load() && !enough && (step < steps_in_epoch || epoch < options_.epochs);
    if (step == 0 && result_.interrupted) break;

    EpochRecord record{epoch, step, epoch_images_, {}, strategy_.take_train_loss(), std::nullopt};
    result_.train_loss = record.train_loss;
    const bool last = enough || epoch == options_.epochs;
    if (!result_.interrupted &&
        (last || (options_.eval_every > 0 && epoch % options_.eval_every == 0)))
      record.evaluation = evaluate();
    if (stop_.load() && record.evaluation) {  // cut short: not a result
      record.evaluation.reset();
      result_.interrupted = true;
    }
    if (record.evaluation) result_.evaluation = record.evaluation;
    spans_.enter(Span::log);
    record.ticks = difference(spans_.ticks(), epoch_since_);
    epoch_since_ = spans_.ticks();
    if (step == steps_in_epoch) ++result_.epochs;
    observer_.epoch(record);
    if (result_.interrupted || enough) break;
  }
}

bool Trainer::one_step(std::uint32_t epoch, std::uint64_t step_in_epoch) {
  spans_.enter(result_.steps == 0 ? Span::first_batch : Span::load);
  begin_step(epoch, result_.steps + 1);
  plant(options_.delays.next);
  Batch batch = stop_.load(std::memory_order_relaxed) ? Batch() : loader_.next();
  if (!batch) {
    abandon_step();
    return false;
  }
  open_.images = batch.count();

  spans_.enter(Span::log);
  observer_.batch(batch);
  spans_.enter(Span::forward);
  plant(options_.delays.forward);
  const bool stepped = batch.count() > 0;  // every sample of it may have failed
  if (stepped) strategy_.step(std::move(batch), spans_);
  batch.release();

  spans_.enter(Span::log);
  plant(options_.delays.log);
  ++result_.steps;
  result_.images += static_cast<std::uint64_t>(open_.images);
  epoch_images_ += static_cast<std::uint64_t>(open_.images);
  if (stepped) open_.loss = strategy_.last_loss();
  if (open_.loss) last_loss_ = open_.loss;
  if (finished_) observer_.step(*finished_);
  finished_.reset();
  observer_.progress({epoch, step_in_epoch, loader_.batches_per_epoch(), result_.steps,
                      epoch_images_, last_loss_, &spans_.ticks()});
  return true;
}

void Trainer::begin_step(std::uint32_t epoch, std::uint64_t step) {
  // The clock has just entered the wait for this step's batch: what came before is the last step's.
  if (open_.step > 0) {
    open_.ticks = difference(spans_.ticks(), open_since_);
    finished_ = open_;
    finished_since_ = open_since_;
    open_since_ = spans_.ticks();
  }
  open_ = {};
  open_.epoch = epoch;
  open_.step = step;
}

void Trainer::abandon_step() {
  // No batch came: the wait belongs to the step before it.
  open_ = finished_ ? *finished_ : StepRecord{};
  open_since_ = finished_since_;
  finished_.reset();
}

void Trainer::close() {
  if (open_.step > result_.steps) abandon_step();  // begun, and ended by an exception
  if (finished_) observer_.step(*finished_);
  finished_.reset();
  if (open_.step == 0) return;
  open_.ticks = difference(spans_.ticks(), open_since_);
  observer_.step(open_);
  open_ = {};
}

std::optional<Evaluation> Trainer::evaluate() {
  spans_.enter(Span::evaluate);
  plant(options_.delays.evaluate);
  const std::unique_ptr<Loader> loader = make_eval_loader_();
  if (loader == nullptr) return std::nullopt;
  return strategy_.evaluate(*loader);
}

}  // namespace millrace
