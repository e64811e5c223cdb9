// Where the trainer thread's time goes: it is always in exactly one span (conservation contract).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "pipeline/loader/timeline.h"

namespace millrace::pipeline {

enum class Span {
  setup,        ///< before the first batch is asked for: libraries, data set, model
  first_batch,  ///< waiting for the run's first batch
  load,         ///< waiting for (workers=0: making) every other batch
  h2d,          ///< moving a batch to the device
  forward,
  backward,
  step,         ///< optimiser
  peer_wait,    ///< waiting for other ranks
  device_wait,  ///< waiting for the device
  evaluate,
  checkpoint,
  log,  ///< progress, records, hashing
  teardown,
};
inline constexpr std::size_t kSpanCount = 13;
inline constexpr std::array<std::string_view, kSpanCount> kSpanNames{
    "setup",     "first_batch", "load",     "h2d",        "forward", "backward", "step",
    "peer_wait", "device_wait", "evaluate", "checkpoint", "log",     "teardown"};

using SpanTicks = std::array<base::Clock::Ticks, kSpanCount>;

/// load = first_batch + load.
constexpr bool is_load(Span span) { return span == Span::first_batch || span == Span::load; }
/// update = h2d + forward + backward + step + peer_wait + device_wait; the rest is other.
constexpr bool is_update(Span span) { return span >= Span::h2d && span <= Span::device_wait; }

/// The trainer thread's clock. Entering a span ends the one before, so nothing falls between.
class SpanClock {
 public:
  explicit SpanClock(base::Clock::Ticks start) : since_(start) {}

  /// Ends the current span and begins `next`; returns the one that ended.
  Span enter(Span next) {
    const base::Clock::Ticks now = base::Clock::now();
    if (log_ != nullptr) log_->push_back({next, now});
    ticks_[static_cast<std::size_t>(current_)] += now - since_;
    if (track_ != nullptr) track_->add({static_cast<int>(current_), since_, now});
    since_ = now;
    const Span before = current_;
    current_ = next;
    return before;
  }
  /// Time in every span up to the last enter().
  const SpanTicks& ticks() const { return ticks_; }
  /// The moment of the last enter().
  base::Clock::Ticks since() const { return since_; }
  Span current() const { return current_; }
  /// From now on every span that ends is a record there, too; null: no longer.
  void record_to(Track<SpanRecord>* track) { track_ = track; }

  /// A span and when it was entered; it lasts until the next one is.
  struct Entry {
    Span span;
    base::Clock::Ticks since;
  };
  /// From now on every enter() is appended to `log`, which begins with the current span. Null ends
  /// it.
  void log_to(std::deque<Entry>* log) {
    log_ = log;
    if (log_ != nullptr) log_->push_back({current_, since_});
  }

 private:
  SpanTicks ticks_{};
  base::Clock::Ticks since_;
  Span current_ = Span::setup;
  Track<SpanRecord>* track_ = nullptr;
  std::deque<Entry>* log_ = nullptr;
};

/// Seconds in all spans of a kind.
struct SpanSeconds {
  explicit SpanSeconds(const SpanTicks& ticks) {
    for (std::size_t i = 0; i < kSpanCount; ++i) {
      const double seconds = base::Clock::seconds(ticks[i]);
      each[i] = seconds;
      const Span span = static_cast<Span>(i);
      (is_load(span) ? load : is_update(span) ? update : other) += seconds;
    }
  }
  std::array<double, kSpanCount> each{};
  double load = 0;
  double update = 0;
  double other = 0;
  double total() const { return load + update + other; }
};

/// One step. Its time runs from where it began to where the next one begins, so that the rows of a
/// run add up to the run: setup belongs to the first, an evaluation to the step before it.
struct StepRecord {
  std::uint32_t epoch = 0;  ///< from 1
  std::uint64_t step = 0;   ///< from 1, over all epochs
  std::int64_t images = 0;
  std::optional<double> loss;  ///< where it was read
  SpanTicks ticks{};
};

}  // namespace millrace::pipeline
