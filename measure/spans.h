// Spans of the trainer thread's time, and the clock that measures them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "measure/track.h"

namespace millrace::measure {

/// Spans of the trainer thread's time: it is always in exactly one (conservation-of-time contract).
enum class Span {
  setup,        ///< before the first batch is requested: libraries, data set, model
  first_batch,  ///< waiting for the run's first batch
  load,         ///< waiting for (workers=0: making) every other batch
  h2d,          ///< copying a batch to the device
  forward,
  backward,
  step,         ///< optimizer step
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

/// Returns whether a span counts as load: first_batch and load do.
constexpr bool is_load(Span span) { return span == Span::first_batch || span == Span::load; }
/// Returns whether a span counts as update: h2d, forward, backward, step, peer_wait and device_wait
/// do. All remaining spans are other.
constexpr bool is_update(Span span) { return span >= Span::h2d && span <= Span::device_wait; }

/// A span that has ended; `span` is a value of Span.
struct SpanRecord {
  int span = 0;
  base::Clock::Ticks begin = 0, end = 0;
};

/// Receives the spans of a SpanClock as they end.
class SpanLog {
 public:
  virtual ~SpanLog() = default;
  virtual void add(const SpanRecord& span) = 0;
};

/// The trainer thread's track.
class SpanTrack final : public SpanLog {
 public:
  explicit SpanTrack(std::size_t capacity) : track_(capacity) {}
  void add(const SpanRecord& span) override { track_.add(span); }
  std::span<const SpanRecord> records() const { return track_.records(); }
  std::uint64_t left_out() const { return track_.left_out(); }

 private:
  Track<SpanRecord> track_;
};

/// The trainer thread's clock. Entering a span ends the one before, so no time is lost between
/// them.
class SpanClock {
 public:
  explicit SpanClock(base::Clock::Ticks start) : since_(start) {}

  /// Ends the current span and begins `next`. Returns the span that ended.
  Span enter(Span next, base::Clock::Ticks now = base::Clock::now()) {
    ticks_[static_cast<std::size_t>(current_)] += now - since_;
    for (SpanLog* log : logs_) log->add({static_cast<int>(current_), since_, now});
    since_ = now;
    const Span before = current_;
    current_ = next;
    return before;
  }
  /// Returns the time in every span up to the last enter().
  const SpanTicks& ticks() const { return ticks_; }
  /// Returns the time of the last enter().
  base::Clock::Ticks since() const { return since_; }
  Span current() const { return current_; }
  /// Adds every span that ends from now on to `log`, which must outlive the clock or be dropped.
  void record_to(SpanLog* log) { logs_.push_back(log); }
  void drop(SpanLog* log) { std::erase(logs_, log); }

 private:
  SpanTicks ticks_{};
  base::Clock::Ticks since_;
  Span current_ = Span::setup;
  std::vector<SpanLog*> logs_;
};

/// Time in each kind of span, in seconds.
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

}  // namespace millrace::measure
