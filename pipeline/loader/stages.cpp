// Reads, decodes, augments and stores the samples of a range, and records what each stage took.
#include "pipeline/loader/stages.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "base/mapped_file_guard.h"
#include "base/rng.h"
#include "measure/batch_history.h"
#include "measure/scheduler_wait.h"
#include "millrace/error.h"
#include "pipeline/loader/decoding.h"
#include "pipeline/loader/memory_claim.h"
#include "pipeline/loader/range_recorder.h"
#include "pipeline/targets/object_list.h"
#include "pipeline/targets/object_mixing.h"

namespace millrace::pipeline {
namespace {

constexpr int kReplaceAttempts = 8;

/// Number of samples to prefetch ahead. Samples lie anywhere in the data set, so the processor
/// cannot predict the next one.
constexpr std::size_t kAhead = 3;

void prefetch(std::span<const std::uint8_t> bytes) {
  constexpr std::size_t kCacheLine = 64;
  constexpr std::size_t kMax = 4096;  // the hardware prefetches the rest of a large sample
  for (std::size_t at = 0; at < std::min(bytes.size(), kMax); at += kCacheLine)
    __builtin_prefetch(bytes.data() + at);
}

/// Returns a view of pixels that need no decoding, laid out as the data set says.
ImageView view_of(const DatasetInfo& info, const Sample& sample) {
  const std::uint8_t* pixels = sample.bytes.data();
  return info.planar ? planar(pixels, info.size, info.channels)
                     : interleaved(pixels, info.size, info.channels);
}

/// Brings the pages of mapped bytes into memory.
void touch(std::span<const std::uint8_t> bytes) {
  constexpr std::size_t kPage = 4096;
  for (std::size_t at = 0; at < bytes.size(); at += kPage)
    static_cast<void>(*static_cast<const volatile std::uint8_t*>(&bytes[at]));
  if (!bytes.empty()) static_cast<void>(*static_cast<const volatile std::uint8_t*>(&bytes.back()));
}

/// Returns whether a sample lies in the reader's own memory, whose pages may not be there yet.
bool is_mapped(const Fetched& fetched) {
  const std::uint8_t* const own = fetched.bytes.data();
  const std::uint8_t* const bytes = fetched.sample.bytes.data();
  return !fetched.sample.held &&
         (std::less<>()(bytes, own) || std::less<>()(own + fetched.bytes.capacity(), bytes));
}

/// Returns the bytes that a sample brings: the stored image, and its other members.
std::uint64_t bytes_of(const Sample& sample) {
  return sample.bytes.size() + member_bytes(sample.members);
}

}  // namespace

Stages::Stages(std::shared_ptr<const Reader> reader, std::shared_ptr<const Transform> transform,
               const LoaderOptions& options)
    : reader_(std::move(reader)),
      transform_(std::move(transform)),
      options_(options),
      annotations_(reader_->annotations()),
      has_masks_(reader_->info().masks),
      tracking_(mixes() ? before_mixing(options.targets) : options.targets),
      sampler_(options, *reader_),
      memory_(options.max_bytes, static_cast<std::size_t>(std::max(1, options.workers))) {}

std::byte* Stages::place_of(Slot& slot, std::int64_t place) {
  return reinterpret_cast<std::byte*>(slot.samples) +
         static_cast<std::size_t>(place) * slot.sample_bytes;
}

void Stages::shape(Slot& slot) const {
  slot.transform = &transform_->at(slot.id.epoch);
  const SampleSpec& output = slot.transform->output();
  slot.size = output.size;
  slot.sample_bytes = output.bytes();
  slot.mask_bytes = mask_bytes(output.size);
  for (Objects& objects : slot.range_objects) objects.mask_bytes = instance_mask_bytes(output.size);
}

Sample Stages::read(std::uint64_t index, Buffer& scratch, StorageModel::Lane& lane,
                    const std::atomic<bool>& stop) const {
  if (options_.storage == nullptr) return reader_->read(index, scratch);
  const std::int64_t begin = base::Clock::steady_ns();
  const Sample sample = reader_->read(index, scratch);
  if (!sample.held)
    options_.storage->serve(begin, bytes_of(sample) + sample.mask.size(), lane, stop);
  return sample;
}

std::span<const std::uint8_t> Stages::mask_of(const Sample& sample, std::uint64_t index,
                                              Buffer& scratch, StorageModel::Lane& lane,
                                              const std::atomic<bool>& stop) const {
  if (!sample.mask.empty()) return sample.mask;
  const std::int64_t begin = base::Clock::steady_ns();
  const std::span<const std::uint8_t> mask = reader_->mask(index, scratch);
  const bool held = mask.data() != scratch.data();  // by data.cache=ram
  if (options_.storage != nullptr && !held) options_.storage->serve(begin, mask.size(), lane, stop);
  return mask;
}

void Stages::fetch(Slot& slot, std::int64_t place, Reading& reading,
                   const std::atomic<bool>& stop) const {
  const base::Clock::Ticks begin = base::Clock::now();
  if (options_.record) measure::SchedulerWait::mine().begin(begin);
  const BatchId& id = slot.id;
  Fetched& fetched = slot.fetched[static_cast<std::size_t>(place)];
  fetched.error = nullptr;
  try {
    const std::uint64_t position = id.first + static_cast<std::uint64_t>(place);
    const std::uint64_t index = sampler_.order(id.epoch)(position);
    const std::uint64_t faults = base::mapped_faults();
    fetched.sample = read(index, fetched.bytes, reading.lane, stop);
    if (is_mapped(fetched)) touch(fetched.sample.bytes);
    if (base::mapped_faults() != faults) fetched.sample = reader_->read(index, fetched.bytes);
    if (has_masks_)
      fetched.mask = mask_of(fetched.sample, index, fetched.mask_bytes, reading.lane, stop);
  } catch (...) {  // the worker handles it in its turn
    fetched.error = std::current_exception();
  }
  if (!options_.record) return;
  const base::Clock::Ticks end = base::Clock::now();
  const std::uint64_t bytes =
      fetched.error == nullptr ? bytes_of(fetched.sample) + fetched.mask.size() : 0;
  reading.record.calls += 1;
  reading.record.bytes += bytes;
  reading.record.ticks += end - begin;
  reading.busy = end - begin;
  reading.core_wait = measure::SchedulerWait::mine().end(begin, end).core_wait;
  if (reading.track != nullptr)
    reading.track->add({id.ordinal, static_cast<std::uint64_t>(place), begin, end, bytes});
}

void Stages::work(const SampleRange& run, Slot& slot, Worker& worker,
                  const std::atomic<bool>& stop) {
  const std::int64_t begin = base::Clock::steady_ns();
  {
    RangeRecorder recorder(worker, slot.units[run.unit], options_.record);
    const DatasetInfo& info = reader_->info();
    bool each = info.encoded || !info.in_place || !slot.fetched.empty() ||
                base::mapped_faults() != 0 || is_tracked() || !info.members.empty();
    if (!each) {
      const bool done = work_in_place(run, slot, worker, recorder, stop);
      // A sample failed or a file was truncated: process samples one by one to find and handle it.
      each = !done || base::mapped_faults() != 0;
    }
    if (each) work_each(run, slot, worker, recorder, stop);
  }
  if (run.count > 0)
    cost_.store((base::Clock::steady_ns() - begin) / run.count + 1, std::memory_order_relaxed);
}

/// Processes pixels that need no scratch. Looks up all samples of a range first, so that they are
/// on their way from memory when they are needed. Returns false if a sample failed; the range is
/// then not done.
bool Stages::work_in_place(const SampleRange& run, Slot& slot, Worker& worker,
                           RangeRecorder& recorder, const std::atomic<bool>& stop) {
  const BatchId& id = slot.id;
  const DatasetInfo& info = reader_->info();
  const auto count = static_cast<std::size_t>(run.count);
  if (worker.samples.size() < count) {
    worker.samples.resize(count);
    worker.indices.resize(count);
  }
  const EpochOrder order = sampler_.order(id.epoch);
  for (std::size_t i = 0; i < count; ++i) {
    worker.indices[i] = order(id.first + static_cast<std::uint64_t>(run.first) + i);
    worker.samples[i] = read(worker.indices[i], worker.bytes, worker.lane, stop);
    if (i < kAhead) prefetch(worker.samples[i].bytes);
  }
  const std::size_t sample_bytes = count > 0 ? worker.samples[0].bytes.size() : 0;
  recorder.end(measure::Stage::read, count, count * sample_bytes);

  for (std::size_t i = 0; i < count; ++i) {
    if (stop.load(std::memory_order_relaxed)) break;
    const Sample& sample = worker.samples[i];
    if (i + kAhead < count) prefetch(worker.samples[i + kAhead].bytes);
    const std::int64_t place = run.first + static_cast<std::int64_t>(i);
    slot.labels[static_cast<std::size_t>(place)] = sample.label;
    slot.indices[static_cast<std::size_t>(place)] = worker.indices[i];
    WholeImage image(view_of(info, sample));
    try {
      slot.transform->run(key_of(slot, place, worker.indices[i]), image, place_of(slot, place),
                          *worker.transform);
    } catch (const Error&) {
      return false;
    }
  }
  recorder.end(measure::Stage::augment, count, count * slot.sample_bytes);
  return true;
}

void Stages::work_each(const SampleRange& run, Slot& slot, Worker& worker, RangeRecorder& recorder,
                       const std::atomic<bool>& stop) {
  const EpochOrder order = sampler_.order(slot.id.epoch);
  Objects* const objects = annotations_ != nullptr ? &slot.range_objects[run.unit] : nullptr;
  if (objects != nullptr) clear(*objects);
  slot.members.begin_range(run.unit);
  for (std::int64_t place = run.first; place < run.first + run.count; ++place) {
    one_place(order, place, slot, worker, recorder, stop);
    if (objects != nullptr) end_sample(*objects);
  }
}

bool Stages::stopped(const std::atomic<bool>& stop) const {
  if (stop.load(std::memory_order_relaxed)) return true;
  if (options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed))
    throw Error(Exit::interrupted, "interrupted while a batch was made");
  return false;
}

/// Fills one position of a batch with its sample or, if that fails, with what on_error says.
void Stages::one_place(const EpochOrder& order, std::int64_t place, Slot& slot, Worker& worker,
                       RangeRecorder& recorder, const std::atomic<bool>& stop) {
  const BatchId& id = slot.id;
  const std::uint64_t position = id.first + static_cast<std::uint64_t>(place);
  std::uint64_t index = order(position);
  Draw other(base::stream({options_.seed, id.epoch, position}, base::op_id("replace")));
  const Fetched* fetched =
      slot.fetched.empty() ? nullptr : &slot.fetched[static_cast<std::size_t>(place)];
  for (int attempt = 0; !stopped(stop); ++attempt) {
    try {
      return one_sample(index, place, fetched, slot, worker, recorder, stop);
    } catch (const RunError&) {  // the fault of this machine, not of a sample
      throw;
    } catch (const Error& error) {  // bad data, or an image that the chain does not fit
      if (error.exit() == Exit::interrupted) throw;
      recorder.fail(reader_->info().encoded, fetched != nullptr);
      failure(index, place, slot, error);
      if (options_.on_error == OnError::fail) return;
      if (options_.on_error == OnError::skip || attempt == kReplaceAttempts)
        return slot.failures.leave_out(place);
      index = order.another(other);
      fetched = nullptr;
    }
  }
}

/// Processes one sample. `fetched` is the sample as an I/O thread has read it, or null to read it
/// here.
void Stages::one_sample(std::uint64_t index, std::int64_t place, const Fetched* fetched, Slot& slot,
                        Worker& worker, RangeRecorder& recorder, const std::atomic<bool>& stop) {
  const std::uint64_t faults = base::mapped_faults();
  Sample sample;
  std::span<const std::uint8_t> mask;
  if (fetched != nullptr && (faults == 0 || !is_mapped(*fetched))) {
    if (fetched->error != nullptr) std::rethrow_exception(fetched->error);
    sample = fetched->sample;
    mask = fetched->mask;
  } else {
    sample = read(index, worker.bytes, worker.lane, stop);
    if (has_masks_) mask = mask_of(sample, index, worker.mask_bytes, worker.lane, stop);
    recorder.end(measure::Stage::read, 1, bytes_of(sample) + mask.size());
  }
  slot.labels[static_cast<std::size_t>(place)] = sample.label;
  slot.indices[static_cast<std::size_t>(place)] = index;
  try {
    if (has_masks_) worker.mask.open(mask, options_.max_pixels);
    transform(index, sample, place, slot, worker, recorder, stop);
  } catch (const DataError&) {
    if (base::mapped_faults() == faults) throw;
  }
  // Pages of a mapped file were lost, so the sample may hold zeros: read it again. From now on
  // readers check the file.
  if (base::mapped_faults() != faults)
    return one_sample(index, place, nullptr, slot, worker, recorder, stop);
  if (!sample.members.empty())
    slot.members.put(static_cast<std::size_t>(place), sample.members,
                     static_cast<std::size_t>(place / slot.grain));
}

void Stages::transform(std::uint64_t index, const Sample& sample, std::int64_t place, Slot& slot,
                       Worker& worker, RangeRecorder& recorder, const std::atomic<bool>& stop) {
  const SampleKey key = key_of(slot, place, index);
  std::byte* out = place_of(slot, place);
  const auto run = [&](PixelSource& image) {
    if (!is_tracked()) return slot.transform->run(key, image, out, *worker.transform);
    if (has_masks_) worker.mask.require_size(image.size());
    slot.transform->run_tracked(key, image, out, *worker.transform, worker.trail);
    track(index, place, image.size(), slot, worker, stop);
    if (has_masks_) move_mask(place, slot, worker, recorder);
  };
  if (reader_->info().encoded) {
    const Transform& transform = *slot.transform;
    const Size size = worker.decode.open(sample.bytes, options_.max_pixels).size;
    recorder.end(measure::Stage::decode, 0, 0);
    const int channels = transform.output().channels;
    const auto pixels =
        static_cast<std::uint64_t>(size.width) * static_cast<std::uint64_t>(size.height);
    const MemoryClaim claim(
        memory_,
        sample_bytes(*reader_, pixels, channels, transform.depth(), transform.full_copies()) +
            member_bytes(sample.members),
        {slot.id.ordinal, place}, worker);
    if (!claim.granted()) return;
    Decoding image(worker.decode, channels, transform.depth(), recorder);
    run(image);
  } else {
    WholeImage image(view_of(reader_->info(), sample));
    run(image);
  }
  recorder.end(measure::Stage::augment, 1, slot.sample_bytes);
}

/// Moves a sample's mask, which is open, along its trail to its place in the batch.
void Stages::move_mask(std::int64_t place, Slot& slot, Worker& worker,
                       RangeRecorder& recorder) const {
  Unpacking mask(worker.mask, recorder);
  std::uint8_t* const out = slot.masks.data() + static_cast<std::size_t>(place) * slot.mask_bytes;
  slot.transform->move_mask(worker.trail, mask, options_.targets.mask_fill, out, *worker.transform);
}

void Stages::failure(std::uint64_t index, std::int64_t place, Slot& slot, const Error& error) {
  const std::string name = reader_->name(index);
  slot.failures.add({place, index, name, error.what()});
  if (options_.on_error != OnError::fail) return;
  std::string hint = error.hint().empty() ? "repair or remove it" : error.hint();
  if (hint.find("loader.on_error") == std::string::npos)
    hint += "; or go on without such samples: loader.on_error=skip";
  const std::string what = name + ": " + error.what();
  slot.failures.note_error(place, error.exit() == Exit::data
                                      ? std::make_exception_ptr(DataError(what, hint))
                                      : std::make_exception_ptr(Error(error.exit(), what, hint)));
}

void Stages::report(Slot& slot) {
  failed_.fetch_add(slot.failures.all().size(), std::memory_order_relaxed);
  if (!options_.quarantine) return;
  for (Failed& one : slot.failures.all())
    options_.quarantine({slot.id.epoch, slot.id.first + static_cast<std::uint64_t>(one.place),
                         one.sample, std::move(one.name), std::move(one.reason)});
}

/// Mixes neighbours of the batch as planned, so that a failed sample changes no other group.
void Stages::mix(Slot& slot, Worker& worker) const {
  const auto classes = static_cast<std::size_t>(transform_->soft_classes());
  const auto count = static_cast<std::size_t>(slot.id.count);
  const std::vector<std::int64_t>& failed = slot.failures.left_out();
  const auto is_there = [&](std::size_t place) {
    return !std::binary_search(failed.begin(), failed.end(), static_cast<std::int64_t>(place));
  };
  float* rows = slot.probabilities.data();
  if (classes > 0) {
    std::fill_n(rows, count * classes, 0.0f);
    for (std::size_t place = 0; place < count; ++place)
      if (is_there(place)) rows[place * classes + static_cast<std::size_t>(slot.labels[place])] = 1;
  }
  ObjectMixer mixer(slot.size, worker.mixed, worker.instance);
  if (annotations_ != nullptr) join_objects(slot, {}, worker.mixed[0]);
  slot.transform->mix(
      {options_.seed, slot.id.epoch, slot.id.first},
      {place_of(slot, 0), rows, count, failed, has_masks_ ? slot.masks.data() : nullptr,
       annotations_ != nullptr ? &mixer : nullptr},
      *worker.transform);
  if (annotations_ != nullptr)
    hand_out(worker.mixed[0], options_.targets, slot.size, failed, slot.objects);
}

void Stages::finish(Slot& slot, Worker& worker) const {
  slot.failures.sort();
  const std::vector<std::int64_t>& failed = slot.failures.left_out();
  if (mixes() && slot.failures.error() == nullptr)
    mix(slot, worker);
  else if (annotations_ != nullptr)
    join_objects(slot, failed, slot.objects);
  slot.leave_out(failed);
}

}  // namespace millrace::pipeline
