// The public Loader and Batch, which forward to LoaderCore.
#include "millrace/loader.h"

#include <fmt/format.h>

#include <charconv>
#include <exception>
#include <new>
#include <utility>
#include <vector>

#include "millrace/error.h"
#include "pipeline/loader/loader_core.h"
#include "pipeline/loader/memory_claim.h"
#include "pipeline/loader/sampler.h"
#include "pipeline/targets/flip_pairs.h"

namespace millrace {
namespace {

StageTotals operator+(const StageTotals& a, const StageTotals& b) {
  return {a.calls + b.calls, a.wall_s + b.wall_s, a.cpu_s + b.cpu_s, a.bytes + b.bytes};
}

/// Returns the totals of two cores that ran one after the other. Both use the same reader, whose
/// own counters `a` holds in full.
LoaderStats operator+(LoaderStats a, const LoaderStats& b) {
  a.read = a.read + b.read;
  a.decode = a.decode + b.decode;
  a.augment = a.augment + b.augment;
  a.machinery_cpu_s += b.machinery_cpu_s;
  a.busy_s += b.busy_s;
  a.core_wait_s += b.core_wait_s;
  a.failed += b.failed;
  a.extra_blocks += b.extra_blocks;
  return a;
}

/// Keeps a core that a thread may still touch, or whose threads cannot be joined.
void leave_behind(std::shared_ptr<pipeline::LoaderCore> core) {
  static auto* left_behind = new std::vector<std::shared_ptr<pipeline::LoaderCore>>;
  left_behind->push_back(std::move(core));
}

/// Starts the core. On failure the core is leaked, because its destructor would wait for the
/// graph's tasks, which never run if no thread could be started.
void start(const std::shared_ptr<pipeline::LoaderCore>& core, int workers) try {
  core->start();
} catch (const std::bad_alloc&) {
  leave_behind(core);
  throw;
} catch (const std::exception& error) {
  core->interrupt();  // stops the threads that were started
  leave_behind(core);
  throw RunError(fmt::format("{} worker{} cannot be started: {}", workers, workers == 1 ? "" : "s",
                             error.what()),
                 "allow more threads or memory (ulimit -u, ulimit -v, the container's limits), or "
                 "lower loader.workers and loader.io_threads");
}

}  // namespace

Shuffle Shuffle::parse(const std::string& text) {
  if (text == "global") return {Kind::global, 0};
  if (text == "none") return {Kind::none, 0};
  const std::string prefix = "window:";
  if (text.starts_with(prefix)) {
    Shuffle shuffle{Kind::window, 0};
    const char* end = text.data() + text.size();
    const auto [stop, status] = std::from_chars(text.data() + prefix.size(), end, shuffle.window);
    if (status == std::errc() && stop == end && shuffle.window > 0) return shuffle;
  }
  throw UsageError("loader.shuffle=" + text + " is not an order of samples",
                   "use global, none or window:N with N samples per window");
}

std::uint64_t epoch_samples(const LoaderOptions& options, std::uint64_t samples) {
  if (options.sampler.samples > 0) return options.sampler.samples;
  const auto batch = static_cast<std::uint64_t>(options.batch);
  return options.sampler.kind == SamplerOptions::Kind::balanced ? samples / batch * batch : samples;
}

std::uint64_t batches_per_epoch(const LoaderOptions& options, std::uint64_t samples) {
  samples = epoch_samples(options, samples);
  const auto batch = static_cast<std::uint64_t>(options.batch);
  return options.drop_last ? samples / batch : (samples + batch - 1) / batch;
}

void check_batch(const LoaderOptions& options, const Reader& reader) {
  const DatasetInfo& dataset = reader.info();
  if (options.rank < 0 || options.rank >= options.world)
    throw UsageError(fmt::format("rank {} of {} ranks: they count from 0 to {}", options.rank,
                                 options.world, options.world - 1));
  const auto largest_of = [&](std::uint64_t pixels) {
    return pipeline::sample_bytes(reader, pixels, /*channels=*/3, Depth::u8, /*copies=*/0);
  };
  const std::uint64_t largest = largest_of(options.max_pixels);
  if (dataset.encoded && largest > options.max_bytes)
    throw UsageError(
        fmt::format("loader.max_bytes={} is too little for one image of data.max_pixels={} pixels, "
                    "which takes {} bytes while it is decoded",
                    options.max_bytes, options.max_pixels, largest),
        fmt::format("set loader.max_bytes={}, or data.max_pixels={}", largest,
                    options.max_bytes / largest_of(1)));
  if (static_cast<std::uint64_t>(options.batch) > dataset.count)
    throw UsageError(fmt::format("a batch of {} is larger than the data set: {} has {} {} samples",
                                 options.batch, dataset.path, dataset.count, dataset.split),
                     fmt::format("set loader.batch to at most {}", dataset.count));
  pipeline::check_sampler(options, dataset.count);
  const std::uint64_t samples = epoch_samples(options, dataset.count);
  if (static_cast<std::uint64_t>(options.batch) > samples)
    throw UsageError(
        fmt::format("a batch of {} is larger than an epoch of {} samples", options.batch, samples),
        options.sampler.kind == SamplerOptions::Kind::given
            ? "lower loader.batch"
            : "raise sampler.samples, or lower loader.batch");
}

void check_targets(const LoaderOptions& options, const Reader& reader, const Transform& transform) {
  const Annotations* annotations = reader.annotations();
  if (const std::string op = transform.pasting_op();
      !op.empty() && (annotations == nullptr || !annotations->has_outlines))
    throw UsageError(
        fmt::format("{} pastes objects by their masks, and {} has none", op, reader.info().path),
        fmt::format("set data.instance_masks=true with data.reader=coco, or leave it out: "
                    "augment.{}.enabled=false",
                    op));
  if (annotations == nullptr && !reader.info().masks) return;
  if (const std::string op = transform.untracked_op(); !op.empty())
    throw UsageError(fmt::format("{} moves pixels in a way that the {} of {} cannot follow", op,
                                 annotations != nullptr ? "boxes" : "masks", reader.info().path),
                     fmt::format("leave it out: augment.{}.enabled=false", op));
  if (const std::string op = transform.blending_op(); !op.empty() && reader.info().masks)
    throw UsageError(fmt::format("{} blends images, and the class ids in the masks of {} cannot be",
                                 op, reader.info().path),
                     fmt::format("leave it out: augment.{}.enabled=false", op));
  if (annotations != nullptr)
    pipeline::check_flip_pairs(options.targets.flip_pairs, annotations->points);
}

Batch::Batch(std::shared_ptr<pipeline::LoaderCore> core, std::size_t slot)
    : core_(std::move(core)), slot_(slot), contents_(&core_->slot(slot)) {}
Batch::Batch(Batch&& other) noexcept
    : core_(std::exchange(other.core_, nullptr)),
      slot_(other.slot_),
      own_(std::exchange(other.own_, nullptr)),
      contents_(std::exchange(other.contents_, nullptr)) {}
Batch& Batch::operator=(Batch&& other) noexcept {
  if (this == &other) return *this;
  release();
  core_ = std::exchange(other.core_, nullptr);
  slot_ = other.slot_;
  own_ = std::exchange(other.own_, nullptr);
  contents_ = std::exchange(other.contents_, nullptr);
  return *this;
}
Batch::~Batch() { release(); }
void Batch::release() {
  contents_ = nullptr;
  own_ = nullptr;
  if (core_ != nullptr) std::exchange(core_, nullptr)->free_slot(slot_);
}
void Batch::detach() {
  if (core_ == nullptr) return;
  own_ = core_->detach(slot_);
  contents_ = own_.get();
  std::exchange(core_, nullptr)->free_slot(slot_);
}
const std::byte* Batch::data() const {
  return reinterpret_cast<const std::byte*>(contents_->samples);
}
Size Batch::size() const { return contents_->size; }
std::size_t Batch::bytes() const {
  return static_cast<std::size_t>(count()) * contents_->sample_bytes;
}
const std::int64_t* Batch::labels() const { return contents_->labels.data(); }
const float* Batch::probabilities() const {
  return classes() > 0 ? contents_->probabilities.data() : nullptr;
}
int Batch::classes() const { return static_cast<int>(contents_->classes); }
const std::uint64_t* Batch::samples() const { return contents_->indices.data(); }
const float* Batch::warps() const {
  return contents_->warps.empty() ? nullptr : contents_->warps.data();
}
const Objects& Batch::objects() const { return contents_->objects; }
std::span<const std::uint8_t> Batch::masks() const {
  return contents_->masks.first(static_cast<std::size_t>(count()) * contents_->mask_bytes);
}
Member Batch::member(std::int64_t sample, std::size_t name) const {
  return contents_->members.get(static_cast<std::size_t>(sample), name);
}
std::int64_t Batch::count() const { return contents_->valid; }
std::int64_t Batch::global_count() const { return contents_->id.global; }
std::uint32_t Batch::epoch() const { return contents_->id.epoch; }
std::uint64_t Batch::index() const { return contents_->id.index; }
measure::BatchHistory Batch::history() const {
  return core_ != nullptr ? core_->history(slot_) : measure::BatchHistory{};
}

Loader::Loader(std::shared_ptr<const Reader> reader, std::shared_ptr<const Transform> transform,
               LoaderOptions options)
    : reader_(std::move(reader)),
      transform_(std::move(transform)),
      options_(std::move(options)),
      core_(std::make_shared<pipeline::LoaderCore>(reader_, transform_, options_)) {
  start(core_, options_.workers);
}
Loader::~Loader() {
  if (!core_->stop()) leave_behind(core_);  // a worker is blocked in the kernel
}
Batch Loader::next() {
  const auto slot = core_->next();
  return slot ? Batch(core_, *slot) : Batch();
}
void Loader::restart(int workers, std::shared_ptr<measure::LoaderTracks> timeline) {
  LoaderOptions options = options_;
  options.workers = workers;
  options.io_threads = workers > 0 ? options_.io_threads : 0;
  options.timeline = std::move(timeline);
  options.first_batch = core_->consumed();
  if (core_->ended()) return;
  const LoaderStats so_far = stats();
  if (!core_->stop()) return;
  past_ = so_far;
  options_ = std::move(options);
  auto next = std::make_shared<pipeline::LoaderCore>(reader_, transform_, options_);
  start(next, options_.workers);
  const std::lock_guard lock(swapping_);
  core_.swap(next);
}
int Loader::workers() const { return options_.workers; }
void Loader::interrupt() {
  const std::lock_guard lock(swapping_);
  core_->interrupt();
}
std::uint64_t Loader::batches_per_epoch() const { return core_->batches().batches_per_epoch(); }
std::uint64_t Loader::samples_per_epoch() const { return core_->batches().samples_per_epoch(); }
std::size_t Loader::slots() const { return core_->slots(); }
std::size_t Loader::slot_bytes() const { return core_->slot_bytes(); }
LoaderStats Loader::stats() const { return core_->stats() + past_; }
const SampleSpec& Loader::output() const { return core_->stages().transform().output(); }

}  // namespace millrace
