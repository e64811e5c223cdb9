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
#include "python/ext/profile.h"
#include "python/ext/samples.h"

namespace millrace::python {

/// Hands out batches from any position. Belongs to one thread at a time and to the process that
/// made it; other use throws RunError, and so does any once the interpreter is ending.
class Engine {
 public:
  /// Opens the data set of `arguments` ("[RECIPE] [key=value ...]") for one of `world` ranks, or
  /// `samples` unless it is null. With `warps`, batches have them. `weights`, unless null, stand
  /// for sampler.weights. The batches' memory comes from `memory` unless it is null. Call it
  /// without the GIL.
  Engine(const std::vector<std::string>& arguments, int rank, int world, bool warps,
         std::shared_ptr<const std::vector<double>> weights, std::shared_ptr<Samples> samples,
         std::shared_ptr<pipeline::SlotMemory> memory);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

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
  std::uint64_t batches() const { return batches_; }
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
  void require_usable() const;
  void open(int world);
  std::shared_ptr<const Reader> open_reader() const;
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
  std::uint64_t batches_ = 0;      ///< per epoch, handed out
  std::uint64_t all_batches_ = 0;  ///< per epoch, with a last one that is too short for the ranks
  std::uint64_t at_ = 0;           ///< ordinal that loader_ returns next
  std::unique_ptr<Loader> loader_;
  std::vector<Failure> failures_;
  std::uint64_t extra_blocks_ = 0;  ///< of loaders that were closed
  std::uint64_t failed_ = 0;
  std::atomic<bool> busy_{false};
};

}  // namespace millrace::python
