// A training run in memory, driven as the program does: formula's samples through the trainer into
// a strategy.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strategies/torch/torch_strategy.h"
#include "strategies/trainer/trainer.h"
#include "tests/torch/formula.h"
#include "tests/torch/model_formula.h"
#include "tests/torch/options.h"

namespace millrace::test {

struct TrainingRun {
  train::StrategyOptions strategy;
  train::TrainOptions training;  ///< batch is over all ranks
  std::uint64_t samples = 0;
  const std::atomic<bool>* stop = nullptr;
  /// Replaces formula's samples.
  std::function<Loader(LoaderOptions)> make_loader;
  std::shared_ptr<pipeline::SlotMemory> memory;  ///< LoaderOptions::memory
  int held = 1;                                  ///< LoaderOptions::held, for the training's loader
  /// Called inside the checkpoint span.
  std::function<void(const train::Position&)> checkpoint;
};

struct Outcome {
  std::vector<double> losses;           ///< by step, over all ranks
  std::vector<std::int64_t> images;     ///< by step, over all ranks
  std::vector<measure::SetUp> set_ups;  ///< by step
  train::DeviceTime device;             ///< if the strategy has a timeline
  std::vector<double> train_losses;     ///< by epoch
  std::vector<double> train_top1s;      ///< by epoch
  train::TrainResult result;
  std::string hash;  ///< hash of the parameters and buffers at the end
};

inline Loader loader_of(const TrainingRun& run, std::uint64_t epochs, std::uint64_t first_batch) {
  const train::StrategyOptions& strategy = run.strategy;
  LoaderOptions options;
  options.batch = run.training.batch;
  options.epochs = epochs;
  options.first_batch = first_batch;
  options.rank = strategy.rank.rank;
  options.world = strategy.rank.world;
  options.held = run.held;
  options.memory = run.memory;
  if (run.make_loader) return run.make_loader(options);
  return formula_loader({strategy.sample.size, strategy.sample.channels}, run.samples, options,
                        strategy.classes);
}

/// Trains from `run.training.from` and evaluates on the same samples.
inline Outcome train(train::Strategy& strategy, const TrainingRun& run) {
  struct Observer final : train::TrainObserver {
    void step(const measure::StepRecord& record) override {
      outcome.losses.push_back(record.loss.value());
      outcome.images.push_back(record.images);
      outcome.set_ups.push_back(record.set_up);
    }
    void epoch(const train::EpochRecord& record) override {
      outcome.train_losses.push_back(record.train_loss);
      outcome.train_top1s.push_back(record.train_top1);
    }
    void checkpoint(const train::Position& position, const measure::StepRecord&, bool) override {
      if (on_checkpoint) on_checkpoint(position);
    }
    Outcome outcome;
    std::function<void(const train::Position&)> on_checkpoint;
  } observer;
  observer.on_checkpoint = run.checkpoint;
  static const std::atomic<bool> never{false};
  measure::SpanClock spans(base::Clock::now());
  Loader loader = loader_of(run, run.training.epochs, run.training.from.steps);
  train::Trainer trainer(
      loader, strategy, observer, spans, run.training,
      [&] { return std::unique_ptr<Loader>(new Loader(loader_of(run, 1, 0))); },
      run.stop != nullptr ? *run.stop : never);
  trainer.run();
  trainer.close();
  if (const auto device = trainer.device_time()) observer.outcome.device = *device;
  observer.outcome.result = trainer.result();
  observer.outcome.hash = strategy.parameters_hash();
  return std::move(observer.outcome);
}

}  // namespace millrace::test
