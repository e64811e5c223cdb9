// Simulates the trainer's thread and the worker processes on shared cores.
#include "predict/data_loader_replay.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <utility>

#include "predict/shared_cores.h"

namespace millrace::predict {
namespace {

/// Replays that find an update's demand, and their steps.
constexpr int kFitRounds = 7;
constexpr int kFitSteps = 24;
/// Seconds of a pause: always, and more per batch and per tensor if batches only compute.
constexpr double kPauseS = 0.0003;
constexpr double kPauseOfLockS = 0.0006;
constexpr double kPauseOfTensorS = 0.0003;
constexpr const char* kNoTime = "a replay needs work that takes time";

class Loop {
 public:
  Loop(const DataLoaderInput& input, std::int64_t warm_up, std::int64_t steps)
      : in_(input),
        warm_up_(warm_up),
        total_(warm_up + steps),
        workers_(static_cast<std::size_t>(input.workers)),
        taker_(input.ahead > 0 ? 1 + 2 * workers_.size() : kTrainer),
        cores_({.count = input.cores, .spins = input.spins}, 2 + 2 * workers_.size()),
        then_(2 + 2 * workers_.size()) {
    // Workers begin one after the other. In step, all of them would compute at once, and all wait.
    const double turn_s = mean_of(input.fetch).seconds() / std::max(1, input.workers);
    for (std::size_t i = 0; i < workers_.size(); ++i)
      workers_[i].rests_until = turn_s * static_cast<double>(i);
  }
  DataLoaderOutput run();

 private:
  /// A worker process. Its n-th batch is the one of number n * workers + its own index.
  struct Worker {
    std::int64_t made = 0;
    std::int64_t sent = 0;
    bool makes = false, sends = false;
    double rests_until = 0;
  };
  /// State of the thread that calls next().
  enum class At { waiting, fetching, receiving, handing, putting, training };

  static constexpr std::size_t kTrainer = 0;
  static std::size_t maker(std::size_t worker) { return 1 + 2 * worker; }
  static std::size_t feeder(std::size_t worker) { return 2 + 2 * worker; }
  std::size_t worker_of(std::int64_t batch) const {
    return static_cast<std::size_t>(batch) % workers_.size();
  }
  std::int64_t batch_of(std::size_t worker, std::int64_t n) const {
    return n * in_.workers + static_cast<std::int64_t>(worker);
  }
  const Demand& fetch_of(std::int64_t batch) const {
    return in_.fetch[static_cast<std::size_t>(batch) % in_.fetch.size()];
  }
  bool has_arrived(std::int64_t batch) const {
    return workers_[worker_of(batch)].sent > batch / in_.workers;
  }

  void start(std::size_t thread, const Demand& demand, double after_s = 0);
  void ended(std::size_t thread);
  void taker_ended();
  void call_next();
  void receive();
  void hand();
  void put();
  void get();
  void train();
  void end_step();
  void dispatch();
  void make(std::size_t worker);
  void send(std::size_t worker);

  const DataLoaderInput& in_;
  const std::int64_t warm_up_, total_;  ///< steps
  std::vector<Worker> workers_;
  const std::size_t taker_;  ///< thread that calls next()
  SharedCores cores_;
  std::vector<const Demand*> then_;  ///< by thread: what it computes once it has slept
  std::int64_t dispatched_ = 0;
  std::int64_t taken_ = 0;  ///< batches that next() has returned
  std::int64_t step_ = 0;
  At at_ = At::waiting;
  int queued_ = 0;
  bool trains_ = false;
  double asked_ = 0, got_ = 0;  ///< the loop asked for a batch, and got it
  double counted_from_ = 0, busy_before_s_ = 0, load_ = 0, update_ = 0;
};

DataLoaderOutput Loop::run() {
  for (int i = 0; i < in_.prefetch * in_.workers; ++i) dispatch();
  asked_ = cores_.now();
  call_next();
  while (step_ < total_) {
    const auto threads = cores_.advance();
    if (threads.empty()) break;
    for (const std::size_t thread : threads) ended(thread);
  }
  const auto steps = static_cast<double>(total_ - warm_up_);
  const double seconds = cores_.now() - counted_from_;
  if (!(seconds > 0)) throw std::invalid_argument(kNoTime);  // or too little beside the warm-up's
  return {.images_per_s = steps * static_cast<double>(in_.batch) / seconds,
          .load_s = load_ / steps,
          .update_s = update_ / steps,
          .busy_cores = (cores_.busy_s() - busy_before_s_) / seconds};
}

void Loop::start(std::size_t thread, const Demand& demand, double after_s) {
  then_[thread] = &demand;
  cores_.sleep_until(thread, cores_.now() + after_s + demand.blocked_s);
}

void Loop::ended(std::size_t thread) {
  if (const Demand* const demand = std::exchange(then_[thread], nullptr)) {
    cores_.run(thread, Work::stage, demand->cpu_s, demand->threads);
    return;
  }
  if (thread == kTrainer && trains_) {
    end_step();
    return;
  }
  if (thread == taker_) {
    taker_ended();
    return;
  }
  const std::size_t worker = (thread - 1) / 2;
  Worker& of = workers_[worker];
  if (thread == maker(worker)) {
    of.makes = false;
    of.rests_until = cores_.now() + in_.pause_s;
    ++of.made;
    send(worker);
    make(worker);
    if (!of.makes && at_ == At::receiving && worker == worker_of(taken_)) cores_.wake(taker_);
  } else {
    of.sends = false;
    const std::int64_t batch = batch_of(worker, of.sent++);
    if (at_ == At::waiting && batch == taken_) receive();
    send(worker);
  }
}

void Loop::taker_ended() {
  switch (at_) {
    case At::waiting:
    case At::putting:
    case At::training:
      return;
    case At::fetching:
    case At::receiving:
      hand();
      return;
    case At::handing:
      ++taken_;
      put();
      return;
  }
}

void Loop::call_next() {
  at_ = At::waiting;
  if (workers_.empty()) {
    at_ = At::fetching;
    start(taker_, fetch_of(taken_));
  } else if (has_arrived(taken_)) {
    receive();
  }
}

void Loop::receive() {
  at_ = At::receiving;
  start(taker_, in_.receive);
  if (!workers_[worker_of(taken_)].makes) cores_.wake(taker_);  // nobody holds the lock
}

void Loop::hand() {
  if (!workers_.empty()) dispatch();
  at_ = At::handing;
  start(taker_, in_.hand, in_.tensor_wait_s);
}

void Loop::put() {
  if (taker_ == kTrainer) {
    at_ = At::training;
    train();
    return;
  }
  at_ = At::putting;
  if (queued_ == in_.ahead) return;  // it is full
  ++queued_;
  if (!trains_) get();
  call_next();
}

void Loop::get() {
  --queued_;
  train();
}

void Loop::train() {
  got_ = cores_.now();
  trains_ = true;
  start(kTrainer, in_.update);
}

void Loop::end_step() {
  trains_ = false;
  if (step_ >= warm_up_) {
    load_ += got_ - asked_;
    update_ += cores_.now() - got_;
  }
  if (++step_ == warm_up_) {
    counted_from_ = cores_.now();
    busy_before_s_ = cores_.busy_s();
  }
  if (step_ >= total_) return;
  asked_ = cores_.now();
  if (taker_ == kTrainer) {
    call_next();
  } else if (queued_ > 0) {
    get();
    if (at_ == At::putting) put();
  }
}

void Loop::dispatch() { make(worker_of(dispatched_++)); }

void Loop::make(std::size_t worker) {
  Worker& of = workers_[worker];
  const std::int64_t batch = batch_of(worker, of.made);
  if (of.makes || batch >= dispatched_) return;
  of.makes = true;
  start(maker(worker), fetch_of(batch), std::max(0.0, of.rests_until - cores_.now()));
}

void Loop::send(std::size_t worker) {
  Worker& of = workers_[worker];
  if (of.sends || of.sent == of.made) return;
  of.sends = true;
  start(feeder(worker), in_.send);
}

}  // namespace

Demand mean_of(std::span<const Demand> demands) {
  Demand sum;
  for (const Demand& one : demands) {
    sum.cpu_s += one.cpu_s;
    sum.blocked_s += one.blocked_s;
  }
  const auto count = static_cast<double>(demands.size());
  return {sum.cpu_s / count, sum.blocked_s / count};
}

double usual_pause(const Demand& fetch, int tensors) {
  if (!(fetch.cpu_s > 0)) return kPauseS;
  const int sent = tensors > 0 ? tensors : kUsualTensors;
  return kPauseS + (kPauseOfLockS + kPauseOfTensorS * sent) * fetch.cpu_s / fetch.seconds();
}

DataLoaderOutput replay(const DataLoaderInput& input) {
  if (input.cores < 1 || input.batch < 1 || input.workers < 0 || input.ahead < 0 ||
      input.fetch.empty() || input.steps < 1)
    throw std::invalid_argument("a replay needs cores, samples, demands and steps");
  if (input.workers > 0 && input.prefetch < 1)
    throw std::invalid_argument("workers need a prefetch of at least 1");
  const Demand& longest =
      *std::max_element(input.fetch.begin(), input.fetch.end(),
                        [](const Demand& a, const Demand& b) { return a.seconds() < b.seconds(); });
  if (input.update.seconds() + input.hand.seconds() + longest.seconds() <= 0)
    throw std::invalid_argument(kNoTime);
  // Batches are handed out in rounds over the workers: counts whole ones.
  const std::int64_t round = std::max(1, input.workers);
  const std::int64_t warm_up = 2 * round * std::max(1, input.prefetch) + 8;
  return Loop(input, warm_up, (input.steps + round - 1) / round * round).run();
}

DataLoaderInput without_spinning(const DataLoaderInput& measured, double update_s) {
  if (measured.update.threads == 1 || measured.workers == 0) return measured;
  DataLoaderInput tried = measured;
  tried.steps = kFitSteps;
  double low = 0;
  double high = 1;
  for (int i = 0; i < kFitRounds; ++i) {
    const double middle = (low + high) / 2;
    tried.update.cpu_s = middle * measured.update.cpu_s;
    (replay(tried).update_s > update_s ? high : low) = middle;
  }
  tried = measured;
  tried.update.cpu_s = high * measured.update.cpu_s;
  return tried;
}

}  // namespace millrace::predict
