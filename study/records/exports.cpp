// Writes a run's records for other tools.

#include "study/records/exports.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "base/descriptor.h"
#include "base/record_file.h"
#include "measure/batch_history.h"
#include "measure/spans.h"
#include "measure/timeline.h"
#include "millrace/error.h"

namespace millrace::study {

// Encodes event files: protobuf fields, CRC-32C and TFRecord frames.

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr double kMaxKept = 1;  ///< in seconds

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);  // the polynomial, bit-reversed
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kCrcTable = make_crc_table();

/// Returns TFRecord's masked checksum, which stays strong for data that contain checksums.
std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u;
}

template <typename Word>
void append_little_endian(std::string& text, Word word) {
  for (std::size_t i = 0; i < sizeof word; ++i) text += static_cast<char>((word >> (8 * i)) & 0xFF);
}

// Protobuf's wire types. Each value follows a key made of its field number and type.
enum Wire { varint = 0, fixed64 = 1, length = 2, fixed32 = 5 };

void append_varint(std::string& text, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) text += static_cast<char>((value & 0x7F) | 0x80);
  text += static_cast<char>(value);
}

void append_key(std::string& text, int field, Wire wire) {
  append_varint(text, static_cast<std::uint64_t>(field << 3 | wire));
}

void append_bytes(std::string& text, int field, std::string_view bytes) {
  append_key(text, field, Wire::length);
  append_varint(text, bytes.size());
  text += bytes;
}

/// Begins an Event with its common fields: wall_time = 1, and step = 2 if it is not 0.
std::string begin_event(double wall_time, std::uint64_t step) {
  std::string event;
  append_key(event, 1, Wire::fixed64);
  append_little_endian(event, std::bit_cast<std::uint64_t>(wall_time));
  if (step == 0) return event;
  append_key(event, 2, Wire::varint);
  append_varint(event, step);
  return event;
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

constexpr std::int64_t kLatest = 9'999'999'998;  ///< seconds, in ten digits with the next one

/// Returns the latest SECONDS in the names of the folder's event files; -1 if there are none.
std::int64_t newest_in(const fs::path& folder) {
  std::int64_t newest = -1;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    std::int64_t seconds = 0;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), seconds);
    newest = std::max(newest, std::min(seconds, kLatest));
  }
  return newest;
}

[[noreturn]] void cannot_write(const fs::path& file) {
  throw RunError(fmt::format("{} cannot be written: {}", file.string(), std::strerror(errno)),
                 "free some space, or leave out train.tensorboard");
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes)
    crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  return ~crc;
}

std::string tf_record(std::string_view bytes) {
  std::string record;
  append_little_endian(record, static_cast<std::uint64_t>(bytes.size()));
  append_little_endian(record, masked_crc(record));
  record += bytes;
  append_little_endian(record, masked_crc(bytes));
  return record;
}

std::string version_event(double wall_time) {
  std::string event = begin_event(wall_time, 0);
  append_bytes(event, 3, "brain.Event:2");  // file_version
  return event;
}

std::string start_event(double wall_time, std::uint64_t step) {
  std::string session;
  append_key(session, 1, Wire::varint);  // status
  append_varint(session, 1);             // START
  std::string event = begin_event(wall_time, step);
  append_bytes(event, 7, session);  // session_log
  return event;
}

std::string scalars_event(double wall_time, std::uint64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  std::string value;
  for (const Scalar& scalar : scalars) {
    value.clear();
    append_bytes(value, 1, scalar.tag);
    append_key(value, 2, Wire::fixed32);  // simple_value
    append_little_endian(value, std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value)));
    append_bytes(summary, 1, value);
  }
  std::string event = begin_event(wall_time, step);
  append_bytes(event, 5, summary);
  return event;
}

EventFile::EventFile(const fs::path& folder, std::uint64_t first_step) {
  // TensorBoard reads the files of a folder in the order of their names.
  const double now = wall_time();
  const std::int64_t newest = newest_in(folder);
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  path_ =
      folder / fmt::format("{}{:010}.{}.{}", kPrefix,
                           std::max(static_cast<std::int64_t>(now), newest + 1), host, getpid());
  base::Descriptor own = base::open_own(path_, O_WRONLY | O_TRUNC);
  file_.reset(fdopen(own.get(), "wb"));
  if (file_ == nullptr) cannot_write(path_);
  static_cast<void>(own.release());
  kept_ = tf_record(version_event(now)) + tf_record(start_event(now, first_step));
  flush();
}

void EventFile::scalars(std::uint64_t step, std::span<const Scalar> scalars) {
  if (scalars.empty()) return;
  const double now = wall_time();
  kept_ += tf_record(scalars_event(now, step, scalars));
  if (now - flushed_ > kMaxKept) flush();
}

void EventFile::flush() {
  if (std::fwrite(kept_.data(), 1, kept_.size(), file_.get()) != kept_.size() ||
      std::fflush(file_.get()) != 0)
    cannot_write(path_);
  kept_.clear();
  flushed_ = wall_time();
}

// Writes the Trace Event Format: tracks, slices, flow arrows.

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
      : timeline_(timeline), options_(options), file_(file), pid_(getpid()) {}

  void write() {
    put(R"({{"displayTimeUnit":"ms","otherData":{{"left_out_records":{}}},"traceEvents":[)"
        "\n",
        timeline_.left_out());
    put(R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":{}}}}})", pid_,
        quoted(options_.process));
    first_ = false;
    timeline_.trainer().records().empty() ? caller() : trainer();
    storage();
    int base = kFirstLoader;
    for (const auto& loader : timeline_.loaders()) {
      workers(*loader, base);
      io_threads(*loader, base + kFirstIo);
      base += kLoaderStride;
    }
    put("\n]}}\n");
    flush(0);
    file_.commit();
  }

 private:
  using Ticks = base::Clock::Ticks;

  template <class... Arguments>
  void put(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(text_), text, std::forward<Arguments>(arguments)...);
  }
  /// Writes a separator, and flushes the buffer now and then.
  void next() {
    if (!first_) put(",\n");
    first_ = false;
    flush(1 << 20);
  }
  void flush(std::size_t from) {
    if (text_.size() < from) return;
    file_.write(std::as_bytes(std::span(text_.data(), text_.size())));
    text_.clear();
  }

  /// Returns nanoseconds from the origin. Whole ones keep nested slices nested.
  std::int64_t ns(Ticks ticks) const {
    return std::llround(base::Clock::seconds(ticks - timeline_.origin_ticks()) * 1e9);
  }
  static double us(std::int64_t ns) { return static_cast<double>(ns) * 1e-3; }

  void name(int track, const std::string& text) {
    next();
    put(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}},)"
        "\n",
        pid_, track, quoted(text));
    put(R"({{"name":"thread_sort_index","ph":"M","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
        pid_, track, track);
  }
  void slice(int track, std::string_view text, std::int64_t begin, std::int64_t end,
             const std::string& arguments = "") {
    next();
    put(R"({{"name":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}{}}})", text, pid_,
        track, us(begin), us(end - begin),
        arguments.empty() ? "" : fmt::format(R"(,"args":{{{}}})", arguments));
  }
  void flow(char phase, std::uint64_t id, int track, std::int64_t at) {
    next();
    put(R"({{"name":"batch","cat":"flow","ph":"{}",{}"id":{},"pid":{},"tid":{},"ts":{:.3f}}})",
        phase, phase == 'f' ? R"("bp":"e",)" : "", id, pid_, track, us(at));
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
      const std::int64_t begin = request.begin_ns - timeline_.origin_ns();
      const std::int64_t end = request.end_ns - timeline_.origin_ns();
      for (const char phase : {'b', 'e'}) {
        next();
        put(R"({{"name":"request","cat":"storage","ph":"{}","id":{},"pid":{},"tid":{},"ts":{:.3f})",
            phase, i, pid_, kStorage, us(phase == 'b' ? begin : end));
        if (phase == 'b') put(R"(,"args":{{"bytes":{}}})", request.bytes);
        put("}}");
      }
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
    if (unit.cpu_ns >= 0) arguments += fmt::format(R"(,"cpu_us":{:.3f})", us(unit.cpu_ns));
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
    flow('s', ++flows_, track, std::max(begin, end - 1));
    flow('f', flows_, kTrainer, arrival->second);
  }

  std::span<const measure::BatchRecord> train_batches() const {
    if (timeline_.loaders().empty()) return {};
    return std::as_const(*timeline_.loaders()[0]).batches().records();
  }

  const measure::Timeline& timeline_;
  const TraceOptions& options_;
  base::AtomicFile file_;
  int pid_;
  bool first_ = true;
  fmt::memory_buffer text_;
  std::map<std::uint64_t, std::int64_t> arrivals_;  ///< end point of each batch's arrows
  std::uint64_t flows_ = 0;
};

}  // namespace

void write_trace(const measure::Timeline& timeline, const TraceOptions& options,
                 const std::filesystem::path& file) {
  Writer(timeline, options, file).write();
}

}  // namespace millrace::study
