// Opens recipes, starts loaders at a position and hands out their batches.
#include "python/ext/engine.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <mutex>
#include <new>
#include <string_view>
#include <thread>
#include <utility>

#include "augment/plan/plan_setup.h"
#include "millrace/error.h"
#include "pipeline/loader/slice.h"
#include "pipeline/readers/url.h"
#include "pipeline/setup/data_setup.h"
#include "pipeline/setup/load_recipe.h"
#include "pipeline/setup/loader_setup.h"
#include "pipeline/setup/open_reader.h"
#include "python/ext/augmentation.h"
#include "python/ext/gil.h"
#include "python/ext/host.h"
#include "python/ext/interrupt.h"
#include "python/ext/kept_interrupt.h"

namespace nb = nanobind;

namespace millrace::python {
namespace {

/// Failures that are kept for Python to collect.
constexpr std::size_t kMaxFailures = 1000;

/// Returns whether every rank has a sample of a batch of `global` samples.
bool serves_all(std::int64_t global, int world, int group) {
  for (int rank = 0; rank < world; ++rank)
    if (pipeline::rank_slice(global, rank, world, group).count == 0) return false;
  return true;
}

/// Returns whether the bytes of batches may depend on the value of a key. The data set itself is
/// identified by its fingerprint, the size of batches by their number.
bool matters(std::string_view key) {
  constexpr std::string_view kAll[] = {
      "seed",           "resample",         "data.split",      "decode.scale",    "loader.mode",
      "loader.shuffle", "loader.drop_last", "loader.on_error", "data.max_pixels", "model.classes"};
  return (key.starts_with("output.") && key != "output.sizes" && key != "output.milestones") ||
         std::find(std::begin(kAll), std::end(kAll), key) != std::end(kAll);
}

/// Returns whether a key says how samples are drawn, which of their objects are handed out, or
/// which epochs have another size. Keys at their defaults are left out of an identity, so that
/// those of older versions hold; weights are identified by their values.
bool changes_samples(const Param& key) {
  return (key.name.starts_with("sampler.") && key.name != "sampler.weights") ||
         key.name.starts_with("targets.") || key.name == "output.sizes" ||
         key.name == "output.milestones";
}

/// Counts the forks behind this process. It is read for every batch, and getpid() is a system call.
std::atomic<unsigned> g_forks{0};

void count_forks() {
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { g_forks.fetch_add(1, std::memory_order_relaxed); });
}

/// Marks the engine as used by this thread.
class Use {
 public:
  explicit Use(std::atomic<bool>& busy) : busy_(busy) {
    if (busy_.exchange(true))
      throw RunError("another thread uses this loader",
                     "let one thread iterate, or make a loader for each thread");
  }
  ~Use() { busy_ = false; }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  std::atomic<bool>& busy_;
};

/// A reader and what ends its waits, which lives as long as the reader.
struct StoppableReader {
  std::shared_ptr<Interrupts> interrupts;
  std::shared_ptr<const Reader> reader;
};

/// Runs work that allocates memory for samples.
template <class Work>
auto with_memory(const Work& work) try {
  return work();
} catch (const std::bad_alloc&) {
  throw RunError("not enough memory for the batches",
                 "lower the images' size, loader.batch, loader.prefetch or loader.workers");
}

/// Throws UsageError if the batches that are made ahead cannot fit into this machine's memory.
void require_memory(const LoaderOptions& options, const SampleSpec& output, const Reader& reader,
                    std::int64_t count) {
  const auto have =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  const int ahead = options.workers > 0 ? options.prefetch : 1;
  double masks = reader.info().masks ? 1 : 0;  // per sample
  if (const Annotations* annotations = reader.annotations())
    masks = static_cast<double>(annotations->outlines.ends.size()) /
            static_cast<double>(reader.info().count);
  const double area = static_cast<double>(output.size.height) * output.size.width;
  const double need = (static_cast<double>(output.bytes()) + masks * area) *
                      static_cast<double>(count) * static_cast<double>(ahead);
  if (need <= have) return;
  throw UsageError(
      fmt::format("{} batches of {} images{} of {} x {} take {:.0f} GB, and this machine "
                  "has {:.0f} GB of memory",
                  ahead, count, masks > 0 ? " and masks" : "", output.size.height,
                  output.size.width, need * 1e-9, have * 1e-9),
      "lower the images' size, loader.batch or loader.prefetch");
}

/// Loads a recipe while no augmentation is defined.
Recipe load_locked(const std::vector<std::string>& arguments) {
  const std::lock_guard lock(registry_lock());
  return pipeline::load_recipe(arguments, host());
}

}  // namespace

/// Opens the samples that Python has, or the data set that the recipe names.
std::shared_ptr<const Reader> Engine::open_reader() const {
  const std::string split = recipe_.text("data.split");
  if (samples_ == nullptr) {
    const std::lock_guard lock(registry_lock());
    return pipeline::open_data(recipe_, split, 0, host(), &interrupts_->stop);
  }
  for (const Param& key : recipe_keys())
    if ((key.name == "data.path" || key.name == "data.reader") &&
        recipe_.at(key.name) != key.fallback)
      throw UsageError(fmt::format("{}={} beside mr.Samples, which is a data set", key.name,
                                   recipe_.text(key.name)),
                       "leave one of them out");
  const DataOptions options = pipeline::data_options(recipe_, split, 0, host());
  if (samples_->groups != nullptr &&
      (options.fold || !options.listed.empty() || options.fraction < 1))
    throw UsageError("data.fold, data.subset and data.fraction choose among rows in memory",
                     "leave them out, or give mr.Samples(pyarrow.parquet.read_table(...))");
  return pipeline::prepared(make_samples_reader(samples_, options), options);
}

/// Opens the data set and compiles the plan.
void Engine::open(int world) {
  const auto opened =
      std::make_shared<StoppableReader>(StoppableReader{interrupts_, open_reader()});
  const std::lock_guard lock(registry_lock());
  std::shared_ptr<const Reader> reader(opened, opened->reader.get());
  plan_ = augment::make_training_plan(recipe_, *reader);
  augment::require_divisible(recipe_, world);
  source_ = std::make_shared<Source>(Source{std::move(reader), plan_->output(), plan_->group() != 1,
                                            remote_ ? interrupts_ : nullptr});
}

Engine::Engine(const std::vector<std::string>& arguments, int rank, int world, bool warps,
               std::shared_ptr<const std::vector<double>> weights, std::shared_ptr<Samples> samples,
               std::shared_ptr<pipeline::SlotMemory> memory, bool ordered)
    : process_(getpid()), recipe_(load_locked(arguments)), samples_(std::move(samples)) {
  if (is_ending()) end_call();
  count_forks();
  forks_ = g_forks;
  remote_ = pipeline::is_remote(recipe_.text("data.path"));
  if (remote_) {
    run_interruptibly(*interrupts_, [&] { open(world); });
  } else {
    open(world);
  }
  options_ = pipeline::loader_options(recipe_, pipeline::emulated_storage(recipe_), rank, world);
  if (weights != nullptr) options_.sampler.weights = std::move(weights);
  if (ordered) {
    refuse_sampler_keys();
    orders_ = std::make_shared<OrderTable>();
    options_.sampler.kind = SamplerOptions::Kind::given;
  }
  options_.warps = warps;
  // One thread holds the GIL while it fetches, ahead of the workers.
  const bool calls =
      samples_ != nullptr && samples_->images == nullptr && samples_->groups == nullptr;
  if (calls && options_.workers > 0 && recipe_.integer("loader.io_threads") < 0)
    options_.io_threads = 1;
  if (samples_ != nullptr && samples_->groups != nullptr) samples_->groups->plan(options_);
  options_.memory = std::move(memory);
  options_.stop = &interrupts_->stop;
  options_.held = 0;  // every batch is detached
  options_.record = false;
  options_.epochs = std::numeric_limits<std::uint32_t>::max();  // the workers go on over their ends
  options_.poll = &has_signal;
  options_.quarantine = [this](const Failure& failure) {
    if (failures_.size() < kMaxFailures) failures_.push_back(failure);
  };
  check_targets(options_, *source_->reader, *plan_);
  counts_ = count(options_.sampler.samples);
  require_memory(options_, output(), *source_->reader, batch_size());
}

/// Throws UsageError for keys that have no effect beside a sampler in Python.
void Engine::refuse_sampler_keys() const {
  for (const Param& key : recipe_keys())
    if ((key.name.starts_with("sampler.") || key.name == "loader.shuffle") &&
        recipe_.at(key.name) != key.fallback)
      throw UsageError(fmt::format("{} has no effect beside a sampler in Python", key.name),
                       "leave one of them out");
}

/// Counts the batches of an epoch of `samples` samples; 0: of as many as the recipe says.
Engine::Counts Engine::count(std::uint64_t samples) const {
  LoaderOptions options = options_;
  options.sampler.samples = samples;
  check_batch(options, *source_->reader);
  const std::uint64_t all = batches_per_epoch(options, dataset().count);
  const auto rest = static_cast<std::int64_t>(epoch_samples(options, dataset().count)) -
                    static_cast<std::int64_t>(all - 1) * options.batch;
  const int group = std::max(1, plan_->group());  // a whole batch has one rank
  const std::uint64_t served =
      all - (serves_all(std::min(options.batch, rest), options.world, group) ? 0 : 1);
  if (served == 0 || !serves_all(options.batch, options.world, group))
    throw UsageError(
        fmt::format("a batch of {} samples over {} ranks leaves a rank without one", options.batch,
                    options.world),
        fmt::format("set loader.batch to at least {}", std::int64_t{options.world} * group));
  return {all, served};
}

std::uint64_t Engine::batches_of(std::uint64_t samples) const { return count(samples).served; }

std::uint64_t Engine::ahead() const {
  const auto batch = static_cast<std::uint64_t>(options_.batch);
  const auto made = static_cast<std::uint64_t>(options_.workers > 0 ? options_.prefetch : 0);
  return made + (source_->reader->lookahead() + batch - 1) / batch;
}

void Engine::set_orders(std::uint64_t epoch, const std::vector<const Order*>& orders) {
  require_usable();
  const Use use(busy_);
  if (!orders_->holds(static_cast<std::uint32_t>(epoch), orders.front()->indices())) {
    const std::uint64_t samples = orders.front()->size();
    counts_ = count(samples);
    const ReleasedGil released;
    stop();
    options_.sampler.samples = samples;
    orders_ = std::make_shared<OrderTable>();
  }
  orders_->forget_before(static_cast<std::uint32_t>(epoch));
  for (const Order* order : orders) {
    if (order->size() != options_.sampler.samples) break;  // another loader makes its batches
    orders_->add(static_cast<std::uint32_t>(epoch++), order->indices());
  }
}

Engine::~Engine() {
  // The threads of a loader do not exist in a forked child, so nothing there can be joined.
  if (g_forks != forks_) {
    static_cast<void>(loader_.release());
    return;
  }
  const ReleasedGil released;  // workers may need it to end
  stop();
}

void Engine::require_usable() const {
  if (is_ending()) end_call();
  if (g_forks.load(std::memory_order_relaxed) == forks_) return;
  throw RunError(
      fmt::format("this loader belongs to process {}: a forked child has none of its threads",
                  process_),
      "make the loader in the child, or start the child with the method spawn");
}

std::int64_t Engine::batch_size() const {
  return pipeline::rank_slice(options_.batch, options_.rank, options_.world,
                              std::max(1, plan_->group()))
      .count;
}

void Engine::seek(std::uint64_t epoch, std::uint64_t batch) {
  require_usable();
  const Use use(busy_);
  const std::uint64_t ordinal = epoch * counts_.all + batch;
  if (epoch >= options_.epochs || batch > counts_.served)
    throw UsageError(fmt::format("epoch {1} has no batch {0}", batch, epoch),
                     fmt::format("an epoch has {} batches", counts_.served));
  resume_if_interrupted();
  // A last batch that is too short for the ranks is left out.
  if (loader_ != nullptr && at_ + 1 == ordinal && counts_.served < counts_.all &&
      at_ % counts_.all == counts_.served)
    take();
  if (loader_ != nullptr && at_ == ordinal) return;
  try {
    start(ordinal);
  } catch (...) {  // a sampler may have had Python fetch labels
    raise_interrupt();
    throw;
  }
}

/// Ends the loader and starts one at a position, once no Ctrl-C ends reads. Call it with the GIL,
/// which it releases.
void Engine::start(std::uint64_t ordinal) {
  const ReleasedGil released;
  stop();
  seen_interrupts_ = interrupts_->wait_for_release();
  LoaderOptions options = options_;
  options.first_batch = ordinal;
  if (orders_ != nullptr) {
    orders_ = std::make_shared<OrderTable>(*orders_);
    options.sampler.order = [orders = orders_](std::uint32_t epoch) { return orders->at(epoch); };
  }
  if (samples_ != nullptr && samples_->groups != nullptr) samples_->groups->restart();
  loader_ = with_memory([&] { return std::make_unique<Loader>(source_->reader, plan_, options); });
  at_ = ordinal;
}

/// Starts another loader where Ctrl-C in a call on the data set has ended the reads of this one.
void Engine::resume_if_interrupted() {
  if (loader_ != nullptr && interrupts_->count != seen_interrupts_) start(at_);
}

/// Returns the next batch, or an empty one where Ctrl-C in a call of another thread has ended the
/// reads: start() then goes on. Call it with the GIL.
Batch Engine::take() {
  Batch batch;
  const auto elsewhere = [this] { return interrupts_->count != seen_interrupts_; };
  const auto failures = static_cast<std::ptrdiff_t>(failures_.size());
  const auto end = [&] {
    const ReleasedGil released;
    batch.release();
    stop();
  };
  // Samples of a batch that was interrupted did not fail.
  const auto forget = [&] { failures_.erase(failures_.begin() + failures, failures_.end()); };
  try {
    const ReleasedGil released;
    const auto next = [this] { return with_memory([this] { return loader_->next(); }); };
    batch = remote_ && options_.workers == 0 ? run_interruptibly(*interrupts_, next) : next();
  } catch (const nb::python_error&) {  // a signal, while another thread made the batch
    end();
    forget();
    throw;
  } catch (...) {  // the loader has ended; seek() starts another
    end();
    try {
      raise_interrupt();
    } catch (...) {
      forget();
      throw;
    }
    if (!elsewhere()) throw;
    forget();
    return {};
  }
  try {
    raise_interrupt();
  } catch (...) {  // a Python function was interrupted, and the batch lacks its sample
    end();
    forget();
    throw;
  }
  if (batch && PyErr_Occurred() != nullptr) {  // it came while has_signal() ran the handler
    const nb::python_error raised;
    end();
    forget();
    throw raised;
  }
  if (!batch) {
    if (is_ending()) end_call();
    if (PyErr_Occurred() != nullptr) throw nb::python_error();  // from has_signal()
    if (!elsewhere()) throw RunError("the loader was stopped");
    forget();
    return batch;
  }
  ++at_;
  return batch;
}

std::shared_ptr<OwnBatch> Engine::next(bool numpy) {
  require_usable();
  const Use use(busy_);
  if (loader_ == nullptr) throw RunError("this loader is closed", "iterate over it again");
  resume_if_interrupted();
  Batch batch;
  while (!(batch = take())) start(at_);
  with_memory([&] { batch.detach(); });
  return std::make_shared<OwnBatch>(std::move(batch), source_, numpy);
}

void Engine::close() {
  if (loader_ != nullptr) {
    require_usable();
    const Use use(busy_);
    const ReleasedGil released;
    stop(true);
  }
  if (samples_ != nullptr && samples_->groups != nullptr && g_forks == forks_)
    samples_->groups->release();
}

/// Ends the loader and keeps its counters. With `all`, threads that read ahead end their reads too.
void Engine::stop(bool all) {
  if (loader_ == nullptr) return;
  extra_blocks_ += loader_->stats().extra_blocks;
  failed_ += loader_->stats().failed;
  const auto begin = std::chrono::steady_clock::now();
  const Interrupts::Hold hold(*interrupts_);  // ends reads that wait for a server
  loader_.reset();
  if (all && remote_) std::this_thread::sleep_until(begin + kHold);
}

std::string Engine::sample_name(std::uint64_t index) const {
  if (index >= dataset().count)
    throw UsageError(fmt::format("no sample {}", index),
                     fmt::format("the data set has {}", dataset().count));
  return source_->name(index);
}

std::vector<StepCost> Engine::profile(std::uint64_t samples) {
  require_usable();
  const auto seed = static_cast<std::uint64_t>(recipe_.integer("seed"));
  return source_->run([&] {
    return with_memory([&] {
      return python::profile(*source_->reader, *plan_, options_.max_pixels, seed, samples);
    });
  });
}

std::string Engine::identity() const {
  std::string text =
      fmt::format("{}\n{:016x}\n{}\n", dataset().count, dataset().fingerprint, options_.batch);
  for (const Param& param : recipe_keys())
    if (matters(param.name) || (changes_samples(param) && recipe_.at(param.name) != param.fallback))
      text += param.name + "=" + recipe_.value(param.name) + "\n";
  if (orders_ != nullptr) text += "sampler in Python\n";
  if (const auto& weights = options_.sampler.weights)
    text +=
        fmt::format("{:016x}\n", XXH3_64bits(weights->data(), weights->size() * sizeof(double)));
  for (const OpSpec& spec : recipe_.augment()) {
    text += fmt::format("{} {} {}\n", spec.op, spec.id, spec.enabled);
    for (const OpDeclaration& op : op_declarations())
      if (op.name == spec.op)
        for (const Param& param : op.params)
          text += param.name + "=" +
                  recipe_.value(fmt::format("augment.{}.{}", spec.id, param.name)) + "\n";
  }
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

LoaderStats Engine::stats() const {
  LoaderStats stats;
  if (loader_ != nullptr) stats = loader_->stats();
  stats.extra_blocks += extra_blocks_;
  stats.failed += failed_;
  return stats;
}

std::vector<Failure> Engine::take_failures() { return std::exchange(failures_, {}); }

}  // namespace millrace::python
