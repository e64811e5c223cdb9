// Sleeps through steps on an absolute schedule.
#include "strategies/trainer/simulated.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <ctime>
#include <limits>

#include "millrace/error.h"
#include "strategies/trainer/device_accounting.h"

namespace millrace::train {
namespace {

void sleep_until(std::int64_t steady_ns) {
  const timespec until{steady_ns / 1'000'000'000, steady_ns % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
  }
}

/// A time in the device's future, known in advance.
class Moment final : public DeviceMark {
 public:
  explicit Moment(std::int64_t steady_ns) : steady_ns_(steady_ns) {}
  bool reached() override { return base::Clock::steady_ns() >= steady_ns_; }
  void wait() override { sleep_until(steady_ns_); }

 private:
  std::int64_t steady_ns_;
};

class Work final : public QueuedStep {
 public:
  Work(std::uint64_t step, std::int64_t begin_ns, std::int64_t end_ns)
      : step_(step), begin_ns_(begin_ns), end_ns_(end_ns) {}
  bool done() override { return base::Clock::steady_ns() >= end_ns_; }
  FinishedStep finish() override {
    sleep_until(end_ns_);
    const base::Clock::Ticks end = base::Clock::ticks_at(end_ns_);
    const double seconds = static_cast<double>(end_ns_ - begin_ns_) * 1e-9;
    return {step_, std::nullopt, end - base::Clock::ticks(seconds), end};
  }

 private:
  std::uint64_t step_;
  std::int64_t begin_ns_, end_ns_;
};

/// The begin and end of each step are known as soon as it is queued: it begins after the previous
/// step, and not before it was queued.
class Simulated final : public Strategy {
 public:
  Simulated(double update_ms, int inflight)
      : update_ms_(update_ms), inflight_(inflight), queue_(inflight) {
    // The kernel may delay wake-ups by 50 µs to combine them; a device does not.
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  }

  void step(Batch batch, const StepContext& place, measure::SpanClock& spans) override {
    last_samples_ = batch.count();
    queue_.make_room(spans);
    const std::int64_t begin = std::max(base::Clock::steady_ns() - owed_ns_, free_ns_);
    // If every sample failed, there is nothing to do.
    free_ns_ = begin + (last_samples_ > 0 ? static_cast<std::int64_t>(update_ms_ * 1e6) : 0);
    std::vector<OwnedMark> copied;
    copied.emplace_back(new Moment(begin));
    held_.hold(std::move(batch), std::move(copied));
    held_.keep_at_most(static_cast<std::size_t>(inflight_), spans);
    if (inflight_ == 0) spans.enter(measure::Span::device_wait);
    queue_.push(std::make_unique<Work>(place.step, begin, free_ns_), spans);
    // A sleeping thread wakes some 50 µs late. The next step begins that much earlier, so that the
    // mean is right without spinning. A device would have waited for the host's own delays, so
    // these are not made up for.
    if (inflight_ == 0)
      owed_ns_ = std::clamp<std::int64_t>(base::Clock::steady_ns() - free_ns_, 0, kMaxOwedNs);
  }
  std::vector<FinishedStep> take_finished() override { return queue_.take(); }
  void drain(measure::SpanClock& spans) override {
    queue_.drain(spans);
    held_.keep_at_most(0, spans);
  }
  int batches_held() const override { return std::max(1, inflight_); }
  void hold_at_most(std::size_t most, measure::SpanClock& spans) override {
    held_.keep_at_most(most, spans);
  }
  double take_train_loss() override { return std::numeric_limits<double>::quiet_NaN(); }
  std::optional<Evaluation> evaluate(Loader&) override { return std::nullopt; }
  std::int64_t last_samples() const override { return last_samples_; }
  Submissions submissions() const override { return queue_.submissions(); }
  bool knows_device_work() const override { return true; }
  Snapshot snapshot() override { return {}; }
  void restore(const std::filesystem::path&) override {}
  std::string parameters_hash() override { return {}; }
  std::uint64_t parameter_count() const override { return 0; }
  std::string device() const override {
    return fmt::format("simulated ({} ms per step)", update_ms_);
  }

 private:
  static constexpr std::int64_t kMaxOwedNs = 200'000;

  double update_ms_;
  int inflight_;
  std::int64_t free_ns_ = 0;  ///< time when the device has finished all queued steps
  std::int64_t owed_ns_ = 0;
  InFlightBatches held_;
  StepQueue queue_;
  std::int64_t last_samples_ = 0;
};

}  // namespace

std::unique_ptr<Strategy> make_simulated(double update_ms, int inflight) {
  return std::make_unique<Simulated>(update_ms, inflight);
}

}  // namespace millrace::train
