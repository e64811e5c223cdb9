// Computes waits between attempts.
#include "pipeline/remote/retry.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/clock.h"
#include "base/rng.h"

namespace millrace::pipeline {
namespace {

class SteadyClock final : public RetryClock {
 public:
  double now_s() override { return static_cast<double>(base::Clock::steady_ns()) * 1e-9; }
  void sleep(double seconds, const std::atomic<bool>* stop) override {
    constexpr double kPiece_s = 0.05;
    for (const double end = now_s() + seconds; now_s() < end;) {
      if (stop != nullptr && stop->load(std::memory_order_relaxed)) return;
      std::this_thread::sleep_for(
          std::chrono::duration<double>(std::clamp(end - now_s(), 0.0, kPiece_s)));
    }
  }
};

}  // namespace

RetryClock::~RetryClock() = default;

RetryClock& RetryClock::system() {
  static SteadyClock clock;
  return clock;
}

Retry::Retry(const RetryOptions& options, RetryClock& clock, std::uint64_t object)
    : options_(options),
      clock_(clock),
      draw_(base::mix64(options.seed ^ base::mix64(object))),
      since_s_(clock.now_s()) {}

std::optional<double> Retry::failed(std::optional<double> asked_s) {
  ++attempts_;
  const double longest = std::min(options_.longest_wait_s,
                                  options_.first_wait_s * std::exp2(std::min(failures_++, 30)));
  draw_ = base::mix64(draw_);
  const double part = static_cast<double>(draw_ >> 11) * 0x1p-53;
  const double wait = std::max(longest * (0.5 + 0.5 * part), asked_s.value_or(0));
  if (clock_.now_s() + wait - since_s_ > options_.deadline_s) return std::nullopt;
  return wait;
}

void Retry::progressed() {
  since_s_ = clock_.now_s();
  failures_ = 0;
}

}  // namespace millrace::pipeline
