// Draws a timeline's tracks, slices and arrows.
#include "study/records/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "measure/batch_history.h"
#include "measure/spans.h"
#include "measure/trace_events.h"

namespace millrace::study {

namespace {

// Track numbers, from the top.
constexpr int kTrainer = 1;
constexpr int kDevice = 2;
constexpr int kStorage = 3;
constexpr int kFirstLoader = 100;
constexpr int kLoaderStride = 1000;  ///< more than the threads of any loader
constexpr int kFirstIo = 300;

constexpr std::array<std::string_view, measure::kStageCount> kStageNames{"read", "decode",
                                                                         "augment"};

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class Writer {
 public:
  Writer(const measure::Timeline& timeline, const TraceOptions& options,
         const std::filesystem::path& file)
      : timeline_(timeline),
        options_(options),
        file_(file),
        events_(0, timeline.left_out()),
        pid_(getpid()) {}

  void write() {
    events_.name_process(pid_, quoted(options_.process));
    timeline_.trainer().records().empty() ? caller() : trainer();
    storage();
    int base = kFirstLoader;
    for (const auto& loader : timeline_.loaders()) {
      workers(*loader, base);
      io_threads(*loader, base + kFirstIo);
      base += kLoaderStride;
    }
    events_.finish();
    flush(0);
    file_.commit();
  }

 private:
  using Ticks = base::Clock::Ticks;

  void flush(std::size_t from) {
    if (events_.size() < from) return;
    const std::string text = events_.take();
    file_.write(std::as_bytes(std::span(text.data(), text.size())));
  }

  /// Returns nanoseconds from the origin. Whole ones keep nested slices nested.
  std::int64_t ns(Ticks ticks) const {
    return std::llround(base::Clock::seconds(ticks - timeline_.origin_ticks()) * 1e9);
  }

  void name(int track, const std::string& text) { events_.name_track({pid_, track}, quoted(text)); }
  void slice(int track, std::string_view text, std::int64_t begin, std::int64_t end,
             std::string_view arguments = "") {
    events_.slice({pid_, track}, text, begin, end, arguments);
    flush(1 << 20);
  }

  /// Writes steps with their spans inside, and beside them the spans outside of steps (setup,
  /// teardown).
  void trainer() {
    name(kTrainer, "trainer");
    if (!options_.device.empty()) name(kDevice, options_.device);
    for (const measure::DeviceRecord& step : timeline_.device().records())
      slice(kDevice, "update " + std::to_string(step.step), ns(step.begin), ns(step.end));
    const auto batches = train_batches();
    std::size_t taken = 0;
    const auto spans = timeline_.trainer().records();
    for (std::size_t i = 0; i < spans.size();) {
      const bool step = taken < batches.size() && serves(spans[i], batches[taken]);
      std::size_t end = i + 1;
      if (step) {
        while (end < spans.size() && !ends_step(spans[end])) ++end;
        const measure::BatchRecord& batch = batches[taken];
        slice(kTrainer, fmt::format("step {}", batch.batch + 1), ns(spans[i].begin),
              ns(spans[end - 1].end),
              fmt::format(R"("epoch":{},"batch":{})", batch.epoch + 1, batch.index));
        ++taken;
      }
      for (std::size_t j = i; j < end; ++j) span(spans[j]);
      if (step) remember_step(batches[taken - 1], spans.subspan(i, end - i));
      i = end;
    }
  }
  static bool serves(const measure::SpanRecord& span, const measure::BatchRecord& batch) {
    return measure::is_load(static_cast<measure::Span>(span.span)) && span.begin <= batch.asked &&
           batch.got <= span.end;
  }
  static bool ends_step(const measure::SpanRecord& span) {
    const auto which = static_cast<measure::Span>(span.span);
    return measure::is_load(which) || which == measure::Span::teardown;
  }
  void span(const measure::SpanRecord& span) {
    slice(kTrainer, measure::kSpanNames[static_cast<std::size_t>(span.span)], ns(span.begin),
          ns(span.end));
  }
  /// Arrows end in the middle of the longest span that works with the batch.
  void remember_step(const measure::BatchRecord& batch,
                     std::span<const measure::SpanRecord> spans) {
    const measure::SpanRecord* target = nullptr;
    for (const measure::SpanRecord& one : spans) {
      if (!measure::is_update(static_cast<measure::Span>(one.span)) || one.begin < batch.got)
        continue;
      if (target == nullptr || target->end - target->begin < one.end - one.begin) target = &one;
    }
    if (target != nullptr) arrivals_[batch.batch] = (ns(target->begin) + ns(target->end)) / 2;
  }

  /// Without a trainer: writes the caller's waits for batches and the use of each.
  void caller() {
    name(kTrainer, "caller");
    const auto batches = train_batches();
    for (std::size_t i = 0; i < batches.size(); ++i) {
      const measure::BatchRecord& batch = batches[i];
      const std::int64_t got = ns(batch.got);
      const std::int64_t end = i + 1 < batches.size() ? ns(batches[i + 1].asked) : got + 1000;
      slice(kTrainer, "wait", ns(batch.asked), got);
      slice(kTrainer, fmt::format("batch {}", batch.batch), got, end,
            fmt::format(R"("epoch":{},"batch":{})", batch.epoch + 1, batch.index));
      arrivals_[batch.batch] = (got + end) / 2;
    }
  }

  /// Writes requests to the emulated disk. They overlap, so they form async events instead of
  /// slices of a track.
  void storage() {
    const auto requests = timeline_.storage().records();
    if (requests.empty()) return;
    name(kStorage, "emulated storage");
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const measure::RequestRecord& request = requests[i];
      events_.overlapping(
          {pid_, kStorage}, "storage", "request", i, request.begin_ns - timeline_.origin_ns(),
          request.end_ns - timeline_.origin_ns(), fmt::format(R"("bytes":{})", request.bytes));
      flush(1 << 20);
    }
  }

  void io_threads(const measure::LoaderTracks& loader, int base) {
    int track = base;
    for (const auto& thread : loader.io_threads()) {
      name(track, fmt::format("{} I/O thread {}", loader.name(), track - base));
      for (const measure::FetchRecord& fetch : thread->records())
        slice(track, "read", ns(fetch.begin), ns(fetch.end),
              fmt::format(R"("batch":{},"place":{},"bytes":{})", fetch.batch, fetch.place,
                          fetch.bytes));
      ++track;
    }
  }

  void workers(const measure::LoaderTracks& loader, int base) {
    int track = base;
    const bool training = !timeline_.loaders().empty() && timeline_.loaders()[0].get() == &loader;
    for (const auto& worker : loader.workers()) {
      if (!loader.made_inline())
        name(track, fmt::format("{} worker {}", loader.name(), track - base));
      for (const measure::RangeRecord& record : worker->records())
        unit(record, loader.made_inline() ? kTrainer : track, training);
      ++track;
    }
  }
  void unit(const measure::RangeRecord& record, int track, bool training) {
    const measure::RangeHistory& unit = record.unit;
    const std::int64_t begin = ns(unit.begin);
    const std::int64_t end = ns(unit.end);
    std::string arguments =
        fmt::format(R"("first":{},"samples":{},"worker":{},"core_wait_us":{:.3f})", unit.first,
                    unit.count, unit.worker, base::Clock::seconds(unit.core_wait) * 1e6);
    if (unit.cpu_ns >= 0)
      arguments += fmt::format(R"(,"cpu_us":{:.3f})", static_cast<double>(unit.cpu_ns) * 1e-3);
    slice(track, fmt::format("batch {}", record.batch), begin, end, arguments);
    // Samples take turns in the stages; the stages' sums are drawn one after the other.
    Ticks at = unit.begin;
    for (std::size_t i = 0; i < measure::kStageCount; ++i) {
      if (unit.stages[i] == 0) continue;
      const std::int64_t from = ns(at);
      at += unit.stages[i];
      slice(track, kStageNames[i], from, std::min(ns(at), end),
            fmt::format(R"("samples":{},"bytes":{})", unit.count, unit.bytes[i]));
    }
    const auto arrival = training ? arrivals_.find(record.batch) : arrivals_.end();
    if (arrival == arrivals_.end()) return;
    events_.arrow({pid_, track}, std::max(begin, end - 1), {pid_, kTrainer}, arrival->second);
  }

  std::span<const measure::BatchRecord> train_batches() const {
    if (timeline_.loaders().empty()) return {};
    return std::as_const(*timeline_.loaders()[0]).batches().records();
  }

  const measure::Timeline& timeline_;
  const TraceOptions& options_;
  base::AtomicFile file_;
  measure::TraceEvents events_;
  int pid_;
  std::map<std::uint64_t, std::int64_t> arrivals_;  ///< end point of each batch's arrows
};

}  // namespace

void write_trace(const measure::Timeline& timeline, const TraceOptions& options,
                 const std::filesystem::path& file) {
  Writer(timeline, options, file).write();
}

}  // namespace millrace::study
