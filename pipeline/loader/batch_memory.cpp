// Grants, allocates and lends the memory of batches.

#include "pipeline/loader/batch_memory.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <new>
#include <utility>

#include "base/rng.h"
#include "pipeline/targets/object_list.h"

namespace millrace::pipeline {

// Grants memory in the order in which batches are consumed.

std::uint64_t MemoryBudget::acquire(std::uint64_t bytes, Turn place) {
  bytes = std::min(bytes, bytes_);
  std::unique_lock lock(mutex_);
  waiting_.push_back(place);
  changed_.wait(lock, [&] {
    return stopped_ || (used_ + bytes <= bytes_ &&
                        *std::min_element(waiting_.begin(), waiting_.end()) == place);
  });
  std::erase(waiting_, place);
  if (stopped_) return 0;
  used_ += bytes;
  if (!waiting_.empty()) changed_.notify_all();  // the next in order may fit as well
  return bytes;
}

void MemoryBudget::release(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
  if (!waiting_.empty()) changed_.notify_all();
}

std::size_t MemoryBudget::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size();
}

void MemoryBudget::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

// Allocates slots, and lets the consumer wait for them with a futex.

namespace {

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout) {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout, nullptr,
          0);
}

/// Requests pages of 2 MiB, so that the kernel clears a slot in a few steps instead of thousands,
/// and writes miss fewer address translations. Covers whole large pages only, so memory use does
/// not grow.
void use_large_pages(std::uint8_t* memory, std::size_t size) {
  constexpr std::size_t kLarge = 2 << 20;
  const std::size_t before = (kLarge - reinterpret_cast<std::uintptr_t>(memory) % kLarge) % kLarge;
  if (size < before + kLarge) return;
  madvise(memory + before, (size - before) / kLarge * kLarge, MADV_HUGEPAGE);  // best effort
}

}  // namespace

KeptMemory::~KeptMemory() {
  for (const Block& block : unused_) {
    if (from_)
      from_->release(block.memory, block.size);
    else
      std::free(block.memory);
  }
}

void* KeptMemory::allocate(std::size_t size) {
  const std::lock_guard lock(mutex_);
  const auto fits = std::find_if(unused_.begin(), unused_.end(),
                                 [size](const Block& block) { return block.size == size; });
  if (fits != unused_.end()) {
    void* const memory = fits->memory;
    unused_.erase(fits);
    return memory;
  }
  unused_.reserve(blocks_ + 1);  // release() must not fail
  void* const memory = from_ ? from_->allocate(size) : std::aligned_alloc(64, size);
  if (memory == nullptr) throw std::bad_alloc();
  if (from_ == nullptr) use_large_pages(static_cast<std::uint8_t*>(memory), size);
  ++blocks_;
  return memory;
}

void KeptMemory::release(void* memory, std::size_t size) noexcept {
  const std::lock_guard lock(mutex_);
  unused_.push_back({memory, size});
}

void BatchContents::reserve(const std::shared_ptr<SlotMemory>& from, const BatchShape& shape) {
  const std::size_t count = shape.samples;
  classes = shape.classes;
  const auto aligned = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
  const std::size_t labels_at = aligned(count * shape.sample_bytes + kTailSlack);
  const std::size_t rows_at = labels_at + aligned(count * sizeof(std::int64_t));
  const std::size_t masks_at = rows_at + aligned(count * classes * sizeof(float));
  memory = SlotBlock(from, masks_at + count * shape.mask_bytes);
  samples = memory.data();
  if (from == nullptr) use_large_pages(samples, memory.size());
  labels = {reinterpret_cast<std::int64_t*>(samples + labels_at), count};
  probabilities = {reinterpret_cast<float*>(samples + rows_at), count * classes};
  masks = {samples + masks_at, count * shape.mask_bytes};
  indices.assign(count, 0);
  members.reserve(count, shape.members);
  if (shape.warps) warps.assign(9 * count, std::numeric_limits<float>::quiet_NaN());
}

bool ReadyEvent::spin(const std::atomic<std::uint32_t>& ready) {
  constexpr int kPauses = 64;      // 1 to 3 µs
  constexpr double kWorth = 0.25;  // of the spins: a sleep and its wake-up cost some 10 µs of CPU
  constexpr unsigned kEvery = 16;  // waits between two attempts while it is not worth it
  if (ready.load(std::memory_order_acquire) == 1) return true;
  if (in_time_ < kWorth && ++waits_ % kEvery != 0) return false;
  bool set = false;
  for (int i = 0; i < kPauses && !set; ++i) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    set = ready.load(std::memory_order_acquire) == 1;
  }
  in_time_ += ((set ? 1.0 : 0.0) - in_time_) / 8;
  return set;
}

void ReadyEvent::wait(std::atomic<std::uint32_t>& ready, const std::atomic<bool>& stopped,
                      const std::atomic<bool>* outer, const std::function<bool()>& poll) {
  if (spin(ready)) return;
  sleeping_.store(true);
  while (ready.load() != 1 && !stopped.load() && (outer == nullptr || !outer->load())) {
    // The time-out serves `outer`, and an interrupt() that falls between check and sleep.
    const timespec most{0, 100'000'000};
    futex(ready, FUTEX_WAIT_PRIVATE, 0, &most);
    if (poll && ready.load() != 1 && poll()) break;
  }
  sleeping_.store(false);
}

void ReadyEvent::set(std::atomic<std::uint32_t>& ready) {
  ready.store(1);
  if (sleeping_.load()) futex(ready, FUTEX_WAKE_PRIVATE, 1, nullptr);
}

void ReadyEvent::wake(std::vector<Slot>& slots) {
  for (Slot& slot : slots) futex(slot.ready, FUTEX_WAKE_PRIVATE, 1, nullptr);
}

// Fills slots with noise for loader.mode=synthetic.
namespace {

/// Returns an IEEE 754 number with 1 + exponent + mantissa bits that is finite and neither tiny nor
/// large.
std::uint32_t number(std::uint64_t random, unsigned exponent_bits, unsigned mantissa_bits) {
  const std::uint32_t bias = (1u << (exponent_bits - 1)) - 1;
  const std::uint32_t exponent = bias - static_cast<std::uint32_t>(random >> 33 & 3);
  const auto mantissa = static_cast<std::uint32_t>(random & ((1u << mantissa_bits) - 1));
  const auto sign = static_cast<std::uint32_t>(random >> 32 & 1);
  return ((sign << exponent_bits | exponent) << mantissa_bits) | mantissa;
}

std::uint32_t element(std::uint64_t random, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return number(random, 8, 23);
    case DType::f16:
      return number(random, 5, 10);
    case DType::bf16:
      return number(random, 8, 7);
    case DType::u8:
      break;
  }
  return static_cast<std::uint32_t>(random & 0xff);
}

}  // namespace

void fill_with_noise(Slot& slot, std::uint64_t seed, std::size_t samples,
                     const Transform& transform, const DatasetInfo& dataset) {
  const SampleSpec& spec = transform.output();
  const std::size_t size = size_of(spec.dtype);
  const std::uint64_t key = base::mix64(seed + 1);
  std::uint8_t* out = slot.memory.data();
  for (std::size_t i = 0; i < samples * spec.elements(); ++i) {
    const std::uint32_t value = element(base::mix64(key + i), spec.dtype);
    std::memcpy(out + i * size, &value, size);  // little endian: the low bytes come first
  }
  const std::size_t classes = dataset.classes.size();
  for (std::size_t i = 0; i < samples; ++i)
    slot.labels[i] = static_cast<std::int64_t>((seed * samples + i) % classes);
  std::fill(slot.probabilities.begin(), slot.probabilities.end(), 0.0f);
  const auto row = static_cast<std::size_t>(transform.soft_classes());
  for (std::size_t i = 0; row > 0 && i < samples; ++i)
    slot.probabilities[i * row + static_cast<std::size_t>(slot.labels[i])] = 1;
  slot.objects.offsets.assign(samples + 1, 0);
  std::fill(slot.masks.begin(), slot.masks.end(), std::uint8_t{0});
  slot.kept = static_cast<std::int64_t>(samples);
}

// Lends blocks to slots and detached batches, and takes them back.

namespace {

/// Exchanges the memory of two batches of one shape.
void swap_memory(BatchContents& a, BatchContents& b) {
  std::swap(a.memory, b.memory);
  std::swap(a.samples, b.samples);
  std::swap(a.labels, b.labels);
  std::swap(a.probabilities, b.probabilities);
  std::swap(a.masks, b.masks);
  a.indices.swap(b.indices);
  a.warps.swap(b.warps);
  std::swap(a.objects, b.objects);
  std::swap(a.members, b.members);
}

void copy_memory(const BatchContents& from, BatchContents& to) {
  std::memcpy(to.memory.data(), from.memory.data(), to.memory.size());
  to.indices = from.indices;
  to.warps = from.warps;
  to.objects = from.objects;
  to.members = from.members;
}

}  // namespace

BatchPool::BatchPool(std::shared_ptr<SlotMemory> from, std::size_t slots, const BatchShape& shape,
                     std::size_t most)
    : from_(std::move(from)), shape_(shape), most_(most), waiting_(slots) {
  unused_.reserve(slots + most_);
  empty_.reserve(slots);
  for (std::size_t i = 0; i < slots; ++i) unused_.push_back(make());
  if (slots > 0) block_bytes_ = unused_.front()->memory.size();
}

std::unique_ptr<BatchContents> BatchPool::make() const {
  auto contents = std::make_unique<BatchContents>();
  contents->reserve(from_, shape_);
  return contents;
}

void BatchPool::lend(BatchContents& slot) noexcept {
  const std::lock_guard lock(mutex_);
  if (slot.has_memory()) return;  // another worker was first
  swap_memory(slot, *unused_.back());
  clear(slot.objects);
  --waiting_;
  empty_.push_back(std::move(unused_.back()));
  unused_.pop_back();
}

void BatchPool::take_back(BatchContents& slot) noexcept {
  const std::lock_guard lock(mutex_);
  swap_memory(slot, *empty_.back());
  ++waiting_;
  unused_.push_back(std::move(empty_.back()));
  empty_.pop_back();
}

std::shared_ptr<const BatchContents> BatchPool::detach(BatchContents& slot, bool copy) {
  std::unique_lock lock(mutex_);
  if (unused_.size() <= waiting_) {  // all belong to slots
    lock.unlock();
    std::unique_ptr<BatchContents> more = make();
    allocated_.fetch_add(1, std::memory_order_relaxed);
    lock.lock();
    unused_.insert(unused_.begin(), std::move(more));  // in no cache, so it is used last
  }
  auto& list = copy ? unused_ : empty_;
  std::unique_ptr<BatchContents> own = std::move(list.back());
  list.pop_back();
  if (!copy) ++waiting_;
  lock.unlock();
  // If this throws, put() restores what was counted, and the slot is as it was.
  const std::shared_ptr<BatchContents> lent(
      own.release(), [pool = shared_from_this()](BatchContents* back) noexcept {
        pool->put(std::unique_ptr<BatchContents>(back));
      });
  if (copy) {
    copy_memory(slot, *lent);
  } else {
    swap_memory(slot, *lent);
  }
  lent->sample_bytes = slot.sample_bytes;
  lent->mask_bytes = slot.mask_bytes;
  lent->size = slot.size;
  lent->id = slot.id;
  lent->valid = slot.valid;
  return lent;
}

void BatchPool::put(std::unique_ptr<BatchContents> contents) noexcept {
  const std::lock_guard lock(mutex_);
  if (!contents->has_memory()) {
    --waiting_;
    empty_.push_back(std::move(contents));
  } else if (unused_.size() < waiting_ + most_) {
    unused_.push_back(std::move(contents));
  }
}

}  // namespace millrace::pipeline
