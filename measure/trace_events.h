// Trace Event Format of Perfetto (ui.perfetto.dev) and chrome://tracing:
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace::measure {

/// The text of a trace, event by event. Times are ns of one clock; the format has µs from the
/// origin. Names of processes and tracks are JSON strings, quotes included; those of slices are
/// plain words. `arguments` are members of a JSON object: `"epoch":1,"batch":2`.
class TraceEvents {
 public:
  struct Track {
    int process = 1;
    int thread = 1;
  };

  /// Begins a trace. `left_out`: records that it lacks.
  explicit TraceEvents(std::int64_t origin_ns, std::uint64_t left_out = 0);

  void name_process(int process, std::string_view name);
  /// Tracks are shown in the order of their numbers.
  void name_track(Track track, std::string_view name);
  /// Adds a slice [begin, end). Slices of one track nest.
  void slice(Track track, std::string_view name, std::int64_t begin, std::int64_t end,
             std::string_view arguments = "");
  /// Adds an arrow from the slice around a moment of one track to that of another.
  void arrow(Track from, std::int64_t start, Track to, std::int64_t arrival);
  /// Adds an event that may overlap others of its track, as slices may not.
  void overlapping(Track track, std::string_view category, std::string_view name, std::uint64_t id,
                   std::int64_t begin, std::int64_t end, std::string_view arguments);
  void finish();

  /// Returns the text since the last call.
  std::string take();
  /// Returns the length in bytes of what take() would return.
  std::size_t size() const { return text_.size(); }

 private:
  /// Begins an event with the members that all have.
  void begin(std::string_view name, char phase, Track track);
  /// Adds nanoseconds as µs, with three decimals.
  void add_us(const char* key, std::int64_t ns);
  /// Ends an event, with `key` and `value` as its arguments unless the value is empty.
  void end(std::string_view key, std::string_view value);

  std::int64_t origin_ns_;
  std::string text_;
  bool first_ = true;
  std::int64_t arrows_ = 0;
};

}  // namespace millrace::measure
