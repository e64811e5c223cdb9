#include "pipeline/stages.h"

#include <algorithm>
#include <cstring>

#include "pipeline/error.h"

namespace millrace {
namespace {

/// Every so many runs the thread's CPU clock is read too; it costs twenty times a tick.
constexpr std::uint64_t kCpuSampling = 32;
constexpr int kReplaceAttempts = 8;

}  // namespace

/// Adds up a run's stages on the stack and enters them in the worker's records at its end.
struct Stages::Recorder {
  Recorder(Worker& of, bool is_on) : worker(of), on(is_on) {
    if (!on) return;
    sampled = worker.runs % kCpuSampling == 0;
    if (sampled) cpu = Clock::thread_cpu_ns();
    begin = last = Clock::now();
  }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  ~Recorder() {
    if (!on) return;
    for (std::size_t i = 0; i < kStageCount; ++i) {
      worker.records[i].calls += sums[i].calls;
      worker.records[i].ticks += sums[i].ticks;
      worker.records[i].bytes += sums[i].bytes;
    }
    ++worker.runs;
    if (!sampled) return;
    worker.sampled_ticks += last - begin;
    worker.sampled_cpu_ns += Clock::thread_cpu_ns() - cpu;
  }
  /// What has passed since the last call belongs to `stage`.
  void end(Stage stage, std::uint64_t calls, std::uint64_t bytes) {
    if (!on) return;
    const Clock::Ticks now = Clock::now();
    Sum& sum = sums[static_cast<std::size_t>(stage)];
    sum.ticks += now - last;
    sum.calls += calls;
    sum.bytes += bytes;
    last = now;
  }

  Worker& worker;
  bool on;
  bool sampled = false;
  std::int64_t cpu = 0;
  Clock::Ticks begin = 0;
  Clock::Ticks last = 0;
  struct Sum {
    std::uint64_t calls = 0;
    Clock::Ticks ticks = 0;
    std::uint64_t bytes = 0;
  };
  Sum sums[kStageCount];
};

/// An encoded image, of which only what is asked for gets decoded.
class Stages::Decoding final : public PixelSource {
 public:
  Decoding(DecodeScratch& decode, int channels, Recorder& recorder)
      : decode_(decode), channels_(channels), recorder_(recorder) {}
  Size size() const override { return decode_.image().size; }
  std::uint32_t scales() const override { return decode_.image().scales; }
  ImageView pixels(const Rect& region, int scale) override {
    recorder_.end(Stage::augment, 0, 0);  // planning
    const ImageView view = decode_.decode(channels_, region, scale);
    recorder_.end(Stage::decode, 1,
                  static_cast<std::uint64_t>(region.x1 - region.x0) *
                      static_cast<std::uint64_t>(region.y1 - region.y0) *
                      static_cast<std::uint64_t>(channels_));
    return view;
  }

 private:
  DecodeScratch& decode_;
  int channels_;
  Recorder& recorder_;
};

Stages::Stages(std::shared_ptr<const Reader> reader, std::shared_ptr<const Transform> transform,
               const LoaderOptions& options)
    : reader_(std::move(reader)), transform_(std::move(transform)), options_(options) {}

std::byte* Stages::place_of(Slot& slot, std::int64_t place) const {
  return reinterpret_cast<std::byte*>(slot.memory.data()) +
         static_cast<std::size_t>(place) * transform_->output().bytes();
}

void Stages::work(const Run& run, Slot& slot, Worker& worker, const std::atomic<bool>& stop) {
  const std::int64_t begin = Clock::steady_ns();
  {
    Recorder recorder(worker, options_.record);
    if (reader_->info().encoded) {
      work_encoded(run, slot, worker, recorder, stop);
    } else {
      work_raw(run, slot, worker, recorder, stop);
    }
  }
  if (run.count > 0)
    cost_.store((Clock::steady_ns() - begin) / run.count + 1, std::memory_order_relaxed);
}

void Stages::work_raw(const Run& run, Slot& slot, Worker& worker, Recorder& recorder,
                      const std::atomic<bool>& stop) {
  const Ticket& ticket = slot.ticket;
  const DatasetInfo& info = reader_->info();
  const auto count = static_cast<std::size_t>(run.count);
  if (worker.samples.size() < count) {
    worker.samples.resize(count);
    worker.indices.resize(count);
  }
  const Sampler sampler(info.count, options_.shuffle, options_.seed, ticket.epoch);
  for (std::size_t i = 0; i < count; ++i) {
    worker.indices[i] = sampler(ticket.first + static_cast<std::uint64_t>(run.first) + i);
    worker.samples[i] = reader_->read(worker.indices[i], worker.bytes);
    __builtin_prefetch(worker.samples[i].bytes.data());
  }
  const std::size_t sample_bytes = count > 0 ? worker.samples[0].bytes.size() : 0;
  recorder.end(Stage::read, count, count * sample_bytes);

  for (std::size_t i = 0; i < count; ++i) {
    if (stop.load(std::memory_order_relaxed)) return;
    const Sample& sample = worker.samples[i];
    const std::int64_t place = run.first + static_cast<std::int64_t>(i);
    slot.labels[static_cast<std::size_t>(place)] = sample.label;
    WholeImage image(info.planar ? planar(sample.bytes.data(), info.size, info.channels)
                                 : interleaved(sample.bytes.data(), info.size, info.channels));
    try {
      transform_->run({options_.seed, ticket.epoch, worker.indices[i]}, image,
                      place_of(slot, place), *worker.transform);
    } catch (const Error& error) {
      note_error(
          slot, place,
          std::make_exception_ptr(Error(
              error.exit(), reader_->name(worker.indices[i]) + ": " + error.what(), error.hint())));
    }
  }
  recorder.end(Stage::augment, count, count * transform_->output().bytes());
}

void Stages::work_encoded(const Run& run, Slot& slot, Worker& worker, Recorder& recorder,
                          const std::atomic<bool>& stop) {
  const Ticket& ticket = slot.ticket;
  const Sampler sampler(reader_->info().count, options_.shuffle, options_.seed, ticket.epoch);
  for (std::int64_t place = run.first; place < run.first + run.count; ++place) {
    if (stop.load(std::memory_order_relaxed)) return;
    const std::uint64_t position = ticket.first + static_cast<std::uint64_t>(place);
    std::uint64_t index = sampler(position);
    Draw other(stream({options_.seed, ticket.epoch, position}, op_id("replace")));
    for (int attempt = 0;; ++attempt) {
      try {
        encoded_sample(index, place, slot, worker, recorder);
        break;
      } catch (const DataError& error) {
        failure(index, place, slot, error.what());
        if (options_.on_error == OnError::fail) break;
        if (options_.on_error == OnError::skip || attempt == kReplaceAttempts) {
          leave_out(place, slot);
          break;
        }
        index = other.integer(static_cast<std::uint32_t>(reader_->info().count));
      } catch (const Error& error) {  // a recipe that doesn't fit the data: no sample would do
        note_error(slot, place,
                   std::make_exception_ptr(Error(
                       error.exit(), reader_->name(index) + ": " + error.what(), error.hint())));
        break;
      }
    }
  }
}

void Stages::encoded_sample(std::uint64_t index, std::int64_t place, Slot& slot, Worker& worker,
                            Recorder& recorder) {
  const Sample sample = reader_->read(index, worker.bytes);
  recorder.end(Stage::read, 1, sample.bytes.size());
  worker.decode.open(sample.bytes, options_.max_pixels);
  recorder.end(Stage::decode, 0, 0);
  slot.labels[static_cast<std::size_t>(place)] = sample.label;
  Decoding image(worker.decode, transform_->output().channels, recorder);
  transform_->run({options_.seed, slot.ticket.epoch, index}, image, place_of(slot, place),
                  *worker.transform);
  recorder.end(Stage::augment, 1, transform_->output().bytes());
}

void Stages::failure(std::uint64_t index, std::int64_t place, Slot& slot,
                     const std::string& reason) {
  failed_.fetch_add(1, std::memory_order_relaxed);
  const std::string name = reader_->name(index);
  if (options_.quarantine) {
    const std::lock_guard lock(quarantining_);
    options_.quarantine({slot.ticket.epoch, slot.ticket.first + static_cast<std::uint64_t>(place),
                         index, name, reason});
  }
  if (options_.on_error != OnError::fail) return;
  note_error(slot, place,
             std::make_exception_ptr(DataError(
                 name + ": " + reason,
                 "mend or remove it, or go on without such samples: loader.on_error=skip")));
}

void Stages::note_error(Slot& slot, std::int64_t place, std::exception_ptr error) {
  // The earliest place counts, so that the message doesn't depend on the workers.
  const std::lock_guard lock(slot.failing);
  if (slot.error_place >= 0 && slot.error_place <= place) return;
  slot.error_place = place;
  slot.error = std::move(error);
}

void Stages::leave_out(std::int64_t place, Slot& slot) {
  const std::lock_guard lock(slot.failing);
  slot.failed.push_back(place);
}

void Stages::finish(Slot& slot) const {
  slot.valid = slot.ticket.count;
  if (slot.failed.empty()) return;
  std::sort(slot.failed.begin(), slot.failed.end());
  const std::size_t bytes = transform_->output().bytes();
  std::uint8_t* memory = slot.memory.data();
  std::size_t kept = 0;
  std::size_t next_failed = 0;
  for (std::size_t place = 0; place < static_cast<std::size_t>(slot.ticket.count); ++place) {
    if (next_failed < slot.failed.size() &&
        static_cast<std::size_t>(slot.failed[next_failed]) == place) {
      ++next_failed;
      continue;
    }
    if (kept != place) {
      std::memcpy(memory + kept * bytes, memory + place * bytes, bytes);
      slot.labels[kept] = slot.labels[place];
    }
    ++kept;
  }
  slot.valid = static_cast<std::int64_t>(kept);
}

}  // namespace millrace
