// A bottleneck planted in one stage is named on any machine: the planting code measures what it
// planted, and time taken by other programs appears as waiting for cores.
#include <gtest/gtest.h>

#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>

#include "augment/plan/plan.h"
#include "pipeline/readers/storage.h"
#include "plugins/host/registry.h"
#include "study/records/wait_records.h"
#include "tests/pipeline/numbered.h"
#include "tests/study/explained_run.h"

namespace millrace::study {
namespace {

constexpr int kSamples = 96;
constexpr int kBatch = 8;

/// Cost of every sample in some stage, and the total measured.
class Cost {
 public:
  enum Kind { sleeping, spinning };
  Cost(Kind kind, double ms) : kind_(kind), ns_(static_cast<std::int64_t>(ms * 1e6)) {}
  void pay() const {
    spent_ns_ += ns_;
    if (kind_ == sleeping) {
      const timespec time{ns_ / 1'000'000'000, ns_ % 1'000'000'000};
      nanosleep(&time, nullptr);
      return;
    }
    const std::int64_t until = base::Clock::thread_cpu_ns() + ns_;
    while (base::Clock::thread_cpu_ns() < until) {
    }
  }
  double seconds() const { return static_cast<double>(spent_ns_) * 1e-9; }

 private:
  Kind kind_;
  std::int64_t ns_;
  mutable std::atomic<std::int64_t> spent_ns_{0};
};

class SlowReader final : public pipeline::Numbered {
 public:
  explicit SlowReader(const Cost* cost) : pipeline::Numbered(kSamples), cost_(cost) {}
  Sample read(std::uint64_t index, Buffer& scratch) const override {
    if (cost_ != nullptr) cost_->pay();
    return pipeline::Numbered::read(index, scratch);
  }

 private:
  const Cost* cost_;
};

/// Images whose decoding takes `tenths` of a ms, for tests/plugins/slow_decoder.cpp.
class SlowImages final : public Reader {
 public:
  SlowImages(Cost::Kind kind, int tenths) : bytes_(kImageBytes, 7) {
    static const auto added = plugins::add_plugin(MILLRACE_SLOW_DECODER);
    info_.reader = "slow images";
    info_.path = "memory";
    info_.split = "train";
    info_.count = kSamples;
    info_.classes.resize(10);
    info_.channels = 1;
    info_.encoded = true;
    std::memcpy(bytes_.data(), "SLOW", 4);
    bytes_[4] = 6;
    bytes_[5] = 5;
    bytes_[6] = static_cast<std::uint8_t>(tenths);
    bytes_[7] = kind == Cost::sleeping ? 's' : 'c';
  }
  Sample read(std::uint64_t index, Buffer&) const override {
    return {bytes_, static_cast<std::int64_t>(index % 10)};
  }
  std::string name(std::uint64_t index) const override { return "image " + std::to_string(index); }

 private:
  static constexpr std::size_t kImageBytes = 8 + 30;
  std::vector<std::uint8_t> bytes_;
};

class SlowTransform final : public Transform {
 public:
  explicit SlowTransform(const Cost* cost)
      : plan_(std::vector<OpSpec>{}, Source{{6, 5}, 1},
              OutputOptions{DType::u8, Layout::chw, {0}, {1}}, Resample::once),
        cost_(cost) {}
  std::unique_ptr<Scratch> make_scratch() const override { return plan_.make_scratch(); }
  const SampleSpec& output() const override { return plan_.output(); }
  void run(const SampleKey& key, PixelSource& source, std::byte* out,
           Scratch& scratch) const override {
    if (cost_ != nullptr) cost_->pay();
    plan_.run(key, source, out, scratch);
  }

 private:
  augment::Plan plan_;
  const Cost* cost_;
};

struct Planted {
  const Cost* read = nullptr;
  const Cost* augment = nullptr;
  pipeline::StorageOptions storage{};
  int workers = 1;
  int io_threads = 0;
  double update_ms = 0;
  int slots = 4;  ///< batches in flight
};

ExplainedRun run(const Planted& planted) {
  LoaderOptions options;
  options.workers = planted.workers;
  options.io_threads = planted.io_threads;
  options.batch = kBatch;
  options.prefetch = planted.slots;
  options.held = 0;
  options.epochs = 2;
  if (planted.storage.limited())
    options.storage = std::make_shared<pipeline::StorageModel>(planted.storage);
  return explained_run(std::make_shared<SlowReader>(planted.read),
                       std::make_shared<SlowTransform>(planted.augment), options,
                       planted.update_ms);
}

/// Expects the stage to have at least 90% of the time that other programs have not taken (which
/// counts as cores), and all of the `planted` seconds to be accounted for.
void expect_named(const ExplainedRun& run, Part stage, double planted, const std::string& what) {
  const double whole = run.load() - run[Part::cores] - run[Part::handover];
  EXPECT_GE(run[stage], 0.9 * whole) << what << to_json(by_part(run.blame.seconds()));
  EXPECT_GE(run[stage] + run[Part::cores], 0.9 * planted)
      << what << to_json(by_part(run.blame.seconds()));
  double sum = 0;
  for (const double part : run.blame.seconds()) sum += part;
  EXPECT_NEAR(sum, run.load(), 1e-9) << what;
}

TEST(Planted, ASlowStageIsNamed) {
  for (const Cost::Kind kind : {Cost::sleeping, Cost::spinning}) {
    for (const int workers : {0, 1}) {  // the trainer waits for all of this stage's work
      const std::string what =
          (kind == Cost::sleeping ? "sleeping, workers=" : "spinning, workers=") +
          std::to_string(workers);
      const Cost augment(kind, 2);
      expect_named(run({.augment = &augment, .workers = workers}), Part::augment, augment.seconds(),
                   "augment, " + what);
      const Cost read(kind, 2);
      expect_named(run({.read = &read, .workers = workers}), Part::storage, read.seconds(),
                   "read, " + what);
    }
  }
}

TEST(Planted, ASlowDecoderIsNamed) {
  for (const Cost::Kind kind : {Cost::sleeping, Cost::spinning}) {
    for (const int workers : {0, 1}) {
      LoaderOptions options;
      options.workers = workers;
      options.batch = kBatch;
      options.prefetch = 3;
      options.epochs = 2;
      const ExplainedRun found =
          explained_run(std::make_shared<SlowImages>(kind, 20),
                        std::make_shared<SlowTransform>(nullptr), options, 0);
      expect_named(found, Part::decode, 2 * kSamples * 2e-3,
                   (kind == Cost::sleeping ? "sleeping, workers=" : "spinning, workers=") +
                       std::to_string(workers));
      EXPECT_EQ(found.calm_verdict().bound, Bottleneck::decode) << found.calm_verdict().sentence;
    }
  }
}

TEST(Planted, SeveralWorkersShareIt) {
  const Cost augment(Cost::sleeping, 4);
  for (const int workers : {2, 3}) {
    // With one batch at a time, no batch queues behind another.
    expect_named(run({.augment = &augment, .workers = workers, .slots = 1}), Part::augment, 0,
                 std::to_string(workers) + " workers, one slot");
    const ExplainedRun found = run({.augment = &augment, .workers = workers});
    // Workers take units in no fixed order: all may work on a later batch while units of the
    // awaited batch queue, which counts as queue. The verdict names the stage they work in.
    const double whole = found.load() - found[Part::cores] - found[Part::handover];
    const std::string what =
        std::to_string(workers) + " workers" + to_json(by_part(found.blame.seconds())).dump();
    EXPECT_GE(found[Part::augment] + found[Part::queue], 0.9 * whole) << what;
    EXPECT_GE(found[Part::augment], 0.5 * whole) << what;
    EXPECT_EQ(found.calm_verdict().bound, Bottleneck::augment) << found.calm_verdict().sentence;
  }
}

TEST(Planted, SlowStorageIsNamed) {
  // 30 bytes per sample; a disk of 15 kB/s takes 2 ms for each.
  for (const auto& [workers, io_threads] : {std::pair(0, 0), std::pair(1, 0), std::pair(2, 4)}) {
    const std::string what = std::to_string(workers) + " workers, " + std::to_string(io_threads);
    const ExplainedRun found =
        run({.storage = {15e3, 0, 0}, .workers = workers, .io_threads = io_threads});
    expect_named(found, Part::storage, 2 * kSamples * 2e-3 - 0.05, what);
    EXPECT_EQ(found.calm_verdict().bound, Bottleneck::storage) << found.calm_verdict().sentence;
  }
}

TEST(Planted, ALimitThatIsNotReachedIsNotNamed) {
  // The disk could deliver a sample in 0.2 ms, and the device take one in 0.1.
  const Cost augment(Cost::sleeping, 4);
  const ExplainedRun found = run({.augment = &augment,
                                  .storage = {150e3, 0, 0},
                                  .workers = 2,
                                  .io_threads = 4,
                                  .update_ms = 1});
  EXPECT_EQ(found.calm_verdict().bound, Bottleneck::augment) << found.calm_verdict().sentence;
  EXPECT_LE(found[Part::storage], 0.1 * found.load());
}

TEST(Planted, AFastLoaderLeavesTheDevice) {
  const Cost augment(Cost::sleeping, 0.5);
  const ExplainedRun found = run({.augment = &augment,
                                  .storage = {150e3, 0, 0},
                                  .workers = 2,
                                  .io_threads = 4,
                                  .update_ms = 20});
  EXPECT_EQ(found.calm_verdict().bound, Bottleneck::device) << found.calm_verdict().sentence;
}

TEST(Planted, BothSidesOfACrossing) {
  // Storage takes 2 ms per sample; two workers that augment for 4 / 1.3 or 4 * 1.3 ms each are 30%
  // faster or slower. On a busy machine a sleeper wakes late, so its actual time is measured.
  for (const double ms : {4 / 1.3, 4 * 1.3}) {
    const Cost augment(Cost::sleeping, ms);
    const ExplainedRun found =
        run({.augment = &augment, .storage = {15e3, 0, 0}, .workers = 2, .io_threads = 4});
    const double each = found.stats.augment.wall_s / (2 * kSamples) / 2;
    if (each > 2e-3 / 1.2 && each < 2e-3 * 1.2) continue;  // the machine is too busy
    EXPECT_EQ(found.calm_verdict().bound, each < 2e-3 ? Bottleneck::storage : Bottleneck::augment)
        << 1e3 * each << " ms a sample; " << found.calm_verdict().sentence;
  }
}

TEST(Planted, WithoutACoreItIsNobodysWork) {
  // Six computing workers share the available cores.
  const Cost augment(Cost::spinning, 2);
  const ExplainedRun found = run({.augment = &augment, .workers = 6});
  const std::int64_t cores = sysconf(_SC_NPROCESSORS_ONLN);
  if (cores > 3) GTEST_SKIP() << "made for at most 3 cores";
  EXPECT_GT(found[Part::cores], found[Part::augment]);
  EXPECT_GT(found.stats.core_wait_s, 0.4 * found.stats.busy_s);
}

}  // namespace
}  // namespace millrace::study
