// A recipe's data set and plan, and the loader that runs over them.
#pragma once

#include <nanobind/nanobind.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "augment/plan/plan.h"
#include "millrace/loader.h"
#include "millrace/recipe.h"
#include "python/ext/batch.h"
#include "python/ext/interrupt.h"
#include "python/ext/order.h"
#include "python/ext/profile.h"
#include "python/ext/samples.h"

namespace millrace::python {

/// Hands out batches from any position. Belongs to one thread at a time and to the process that
/// made it; other use throws RunError, and so does any once the interpreter is ending.
class Engine {
 public:
  /// Opens the data set of `arguments` ("[RECIPE] [key=value ...]") for one of `world` ranks, or
  /// `samples` unless it is null. With `warps`, batches have them. `weights`, unless null, stand
  /// for sampler.weights. The batches' memory comes from `memory` unless it is null. With
  /// `ordered`, set_orders() says which samples an epoch has. Call it without the GIL.
  Engine(const std::vector<std::string>& arguments, int rank, int world, bool warps,
         std::shared_ptr<const std::vector<double>> weights, std::shared_ptr<Samples> samples,
         std::shared_ptr<pipeline::SlotMemory> memory, bool ordered);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Gives the orders of `epoch` and of those that follow it. Ends the loader that seek() began
  /// unless it has this order of `epoch`; orders behind one of another length do not count. Call
  /// it with the GIL. Throws UsageError if batches do not fit such an epoch.
  void set_orders(std::uint64_t epoch, const std::vector<const Order*>& orders);
  /// Makes the next call of next() return this batch. Batches made ahead are kept if they fit.
  void seek(std::uint64_t epoch, std::uint64_t batch);
  /// Returns the next batch, detached, for NumPy or PyTorch. Call it with the GIL: it is released
  /// while next() waits, and taken for signals: every 100 ms, or every 50 ms where this thread
  /// would read a remote set itself, which another one then does for it. Goes on at its position
  /// where Ctrl-C in another call has ended the workers' reads.
  std::shared_ptr<OwnBatch> next(bool numpy);
  /// Ends the workers and, within 0.2 s, the reads of a remote set. A later seek() starts new ones.
  /// Call it with the GIL, which it releases.
  void close();

  /// Returns the batches of an epoch that have at least one sample for every rank.
  std::uint64_t batches() const { return counts_.served; }
  /// Returns batches() of an epoch of `samples` samples. Throws UsageError if batches do not fit.
  std::uint64_t batches_of(std::uint64_t samples) const;
  /// Returns how many batches behind the next one may be made, or have their samples fetched.
  std::uint64_t ahead() const;
  /// Returns the samples per batch over all ranks.
  std::int64_t global_batch() const { return options_.batch; }
  /// Returns the samples per batch of this rank at most.
  std::int64_t batch_size() const;
  const LoaderOptions& options() const { return options_; }
  const std::shared_ptr<const Source>& source() const { return source_; }
  const DatasetInfo& dataset() const { return source_->reader->info(); }
  const SampleSpec& output() const { return plan_->output(); }
  std::string sample_name(std::uint64_t index) const;
  /// Returns what each step of the plan took for up to `samples` samples. Call it without the GIL.
  std::vector<StepCost> profile(std::uint64_t samples);
  /// Returns a hash of everything that the batches' bytes depend on but epoch and position.
  std::string identity() const;
  std::string toml() const { return recipe_.to_toml(); }
  std::string recipe_name() const { return recipe_.name(); }
  LoaderStats stats() const;
  std::vector<Failure> take_failures();

 private:
  /// Batches per epoch.
  struct Counts {
    std::uint64_t all = 0;     ///< with a last one that is too short for the ranks
    std::uint64_t served = 0;  ///< handed out
  };

  void require_usable() const;
  void open(int world);
  std::shared_ptr<const Reader> open_reader() const;
  void refuse_sampler_keys() const;
  Counts count(std::uint64_t samples) const;
  Batch take();
  void start(std::uint64_t ordinal);
  void resume_if_interrupted();
  void stop(bool all = false);

  const pid_t process_;
  unsigned forks_ = 0;  ///< forks between the program's start and this engine's making
  Recipe recipe_;
  bool remote_ = false;  ///< reads may wait for a server
  std::shared_ptr<Interrupts> interrupts_ = std::make_shared<Interrupts>();
  std::shared_ptr<Samples> samples_;   ///< null: the recipe names the data set
  std::uint64_t seen_interrupts_ = 0;  ///< when loader_ began; a later one has ended its reads
  std::shared_ptr<const Source> source_;
  std::shared_ptr<const augment::Plan> plan_;
  LoaderOptions options_;
  std::shared_ptr<OrderTable> orders_;  ///< of loader_; null: the recipe says which samples
  Counts counts_;
  std::uint64_t at_ = 0;  ///< ordinal that loader_ returns next
  std::unique_ptr<Loader> loader_;
  std::vector<Failure> failures_;
  std::uint64_t extra_blocks_ = 0;  ///< of loaders that were closed
  std::uint64_t failed_ = 0;
  std::atomic<bool> busy_{false};
};

}  // namespace millrace::python
