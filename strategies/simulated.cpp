#include "strategies/simulated.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <ctime>
#include <limits>

#include "pipeline/error.h"

namespace millrace {
namespace {

class Simulated final : public Strategy {
 public:
  explicit Simulated(double update_ms) : update_ms_(update_ms) {
    // The kernel may round a sleep up by 50 µs to save wake-ups; a device does not.
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  }

  void step(Batch batch, const StepPlace&, SpanClock& spans) override {
    last_samples_ = batch.count();
    if (last_samples_ == 0) return;  // every sample of it has failed
    spans.enter(Span::device_wait);
    const std::int64_t deadline =
        Clock::steady_ns() + static_cast<std::int64_t>(update_ms_ * 1e6) - owed_ns_;
    batch.release();  // a real device has copied it by now
    const timespec until{deadline / 1'000'000'000, deadline % 1'000'000'000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
    }
    // A sleeper wakes some 50 µs late; the next step is as much shorter, so that the mean is right
    // without spinning. What the host itself was late by, a device would have waited.
    owed_ns_ = std::clamp<std::int64_t>(Clock::steady_ns() - deadline, 0, kMostOwedNs);
  }
  std::optional<double> last_loss() override { return std::nullopt; }
  double take_train_loss() override { return std::numeric_limits<double>::quiet_NaN(); }
  std::optional<Evaluation> evaluate(Loader&) override { return std::nullopt; }
  std::int64_t last_samples() const override { return last_samples_; }
  void save(const std::filesystem::path&) override {}
  void restore(const std::filesystem::path&) override {}
  std::string parameters_hash() override { return {}; }
  std::uint64_t parameter_count() const override { return 0; }
  std::uint64_t peak_device_bytes() override { return 0; }
  std::string device() const override {
    return fmt::format("simulated ({} ms a step)", update_ms_);
  }

 private:
  static constexpr std::int64_t kMostOwedNs = 200'000;

  double update_ms_;
  std::int64_t owed_ns_ = 0;
  std::int64_t last_samples_ = 0;
};

}  // namespace

std::unique_ptr<Strategy> make_simulated(double update_ms) {
  return std::make_unique<Simulated>(update_ms);
}

}  // namespace millrace
