// Replay against closed forms, and properties that hold for any configuration.
#include "predict/loader_replay.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <random>
#include <stdexcept>

namespace millrace::predict {
namespace {

/// 64 samples of 10 µs per batch on one worker: 640 µs of loading, against a device of 1 ms.
ReplayInput base() {
  ReplayInput in;
  in.cores = 2;
  in.workers = 1;
  in.batch = 64;
  in.samples = 6400;
  in.sample_s = 10e-6;
  in.update_s = 1e-3;
  return in;
}

TEST(Replay, ADeviceThatIsTheLimitIsNeverKeptWaiting) {
  const ReplayOutput out = replay(base());
  EXPECT_NEAR(out.images_per_s, 64 / 1e-3, 1);
  EXPECT_NEAR(out.load_s, 0, 1e-9);
  EXPECT_NEAR(out.update_s, 1e-3, 1e-9);
  EXPECT_NEAR(out.device_busy, 1, 1e-6);
  EXPECT_NEAR(out.workers_busy, 0.64, 0.01);
  EXPECT_NEAR(out.cores_busy, 0.32, 0.01);
}

TEST(Replay, ALoaderThatIsTheLimitGivesItsOwnRate) {
  ReplayInput in = base();
  in.update_s = 0.2e-3;
  const ReplayOutput one = replay(in);
  EXPECT_NEAR(one.images_per_s, 1 / 10e-6, 0.005 / 10e-6);
  EXPECT_NEAR(one.load_s + one.update_s, 640e-6, 4e-6);
  EXPECT_NEAR(one.workers_busy, 1, 1e-3);
  in.workers = 2;  // on two cores
  EXPECT_NEAR(replay(in).images_per_s, 2 / 10e-6, 0.01 / 10e-6);
  in.workers = 4;  // the maximum of two cores
  EXPECT_NEAR(replay(in).images_per_s, 2 / 10e-6, 0.02 / 10e-6);
  in.cores = 4;
  EXPECT_NEAR(replay(in).images_per_s, 64 / 0.2e-3, 1);
}

TEST(Replay, WithoutWorkersLoadAndUpdateTakeTurns) {
  ReplayInput in = base();
  in.workers = 0;
  in.batch_s = 60e-6;
  in.host_s = 5e-6;
  const ReplayOutput out = replay(in);
  EXPECT_NEAR(out.load_s, 700e-6, 1e-9);
  EXPECT_NEAR(out.update_s, 1e-3, 1e-9);
  EXPECT_NEAR(out.other_s, 5e-6, 1e-9);
  EXPECT_NEAR(out.images_per_s, 64 / 1.7e-3, 1);
}

TEST(Replay, TwoCoresAreSharedByLoaderAndDeviceWork) {
  // One worker and an update of one thread on one core: each gets half of it while both run.
  ReplayInput in = base();
  in.cores = 1;
  in.update_threads = 1;
  in.frees_early = false;
  EXPECT_NEAR(replay(in).images_per_s, 64 / 1.64e-3, 64 / 1.64e-3 * 0.01);
  // On two cores they do not compete; with two threads for the update all three share two cores: 2
  // x 1 ms + 0.64 ms of work per step.
  in.cores = 2;
  EXPECT_NEAR(replay(in).images_per_s, 64 / 1e-3, 64 / 1e-3 * 0.002);
  in.update_threads = 2;
  const double step = replay(in).update_s + replay(in).load_s;
  EXPECT_GT(step, 2.64e-3 / 2 - 1e-6);
  EXPECT_LT(step, 1.64e-3);
}

TEST(Replay, CrowdedCoresAreSlowerByWhatWasMeasured) {
  ReplayInput in = base();
  in.update_s = 0.1e-3;
  in.workers = 2;
  const double free = replay(in).images_per_s;
  in.crowding_stage = 1.25;
  EXPECT_NEAR(replay(in).images_per_s, free / 1.25, free * 0.01);
  in.workers = 1;  // the other core is idle except for the trainer
  EXPECT_NEAR(replay(in).images_per_s, 1 / 10e-6, 0.01 / 10e-6);
}

TEST(Replay, StorageIsAQueueWithBandwidthLatencyAndRequests) {
  ReplayInput in = base();
  in.update_s = 0.1e-3;
  in.sample_s = 1e-6;
  in.io_threads = 4;
  in.bytes = {50e3, 150e3};
  in.storage.bytes_per_s = 100e6;
  EXPECT_NEAR(replay(in).images_per_s, 1000, 10);
  EXPECT_NEAR(replay(in).storage_busy, 1, 0.01);
  in.storage = {.requests_per_s = 700};
  EXPECT_NEAR(replay(in).images_per_s, 700, 7);
  in.storage = {.latency_s = 8e-3};  // as many reads at once as there are threads
  EXPECT_NEAR(replay(in).images_per_s, 4 / 8e-3, 5);
  in.io_threads = 16;
  EXPECT_NEAR(replay(in).images_per_s, 16 / 8e-3, 30);
  in.io_threads = 0;  // the worker reads for itself
  EXPECT_NEAR(replay(in).images_per_s, 1 / 8.001e-3, 1);
  in.workers = 0;
  EXPECT_NEAR(replay(in).load_s, 64 * 8.001e-3, 1e-6);
}

TEST(Replay, BandwidthThatIsNotTheLimitTakesNothingAway) {
  ReplayInput in = base();
  in.bytes = {100e3};
  in.io_threads = 4;
  in.storage.bytes_per_s = 1.3 * 64 / 1e-3 * 100e3;
  EXPECT_NEAR(replay(in).images_per_s, 64 / 1e-3, 300);
  in.storage.bytes_per_s = 0.7 * 64 / 1e-3 * 100e3;
  EXPECT_NEAR(replay(in).images_per_s, 0.7 * 64 / 1e-3, 500);
}

TEST(Replay, OneBatchAheadIsNotEnoughWhereBatchesDiffer) {
  // Every sixteenth batch costs sixteen times as much: several slots even that out, one cannot.
  ReplayInput in = base();
  in.batch = 1;
  in.sample_s = 640e-6;
  in.weights.assign(6400, 16.0 / 31);
  for (std::size_t i = 0; i < in.weights.size(); i += 16) in.weights[i] = 16 * 16.0 / 31;
  in.update_s = 700e-6;
  in.prefetch = 16;
  EXPECT_GT(replay(in).images_per_s, 0.97 / 700e-6);
  in.prefetch = 1;  // 15 cheap batches are hidden, the expensive one but for two updates
  const double round = 16 * 700e-6 + 640e-6 * 256 / 31 - 2 * 700e-6;
  EXPECT_NEAR(replay(in).images_per_s, 16 / round, 0.05 * 16 / round);
}

TEST(Replay, AnEpochsShortBatchCountsItsOwnSamples) {
  ReplayInput in = base();
  in.samples = 96;  // batches of 64 and 32
  EXPECT_NEAR(replay(in).images_per_s, 48 / 1e-3, 1);
  in.drop_last = true;
  EXPECT_NEAR(replay(in).images_per_s, 64 / 1e-3, 1);
}

TEST(Replay, TakingABatchIsTheTrainersOwnWork) {
  ReplayInput in = base();
  in.take_s = 30e-6;
  EXPECT_NEAR(replay(in).load_s, 30e-6, 1e-9);
  EXPECT_NEAR(replay(in).images_per_s, 64 / 1.03e-3, 1);
  in.workers = 0;  // nothing competes
  EXPECT_NEAR(replay(in).load_s, 640e-6, 1e-9);
}

TEST(Replay, WakingUpIsHiddenByTheSlots) {
  // With all slots full nobody sleeps; while the trainer does, the workers continue.
  ReplayInput in = base();
  in.wake_s = 50e-6;
  EXPECT_NEAR(replay(in).load_s, 0, 1e-9);
  in.update_s = 0.2e-3;
  EXPECT_NEAR(replay(in).load_s + replay(in).update_s, 640e-6, 4e-6);
}

TEST(Replay, RanksShareCoresAndStorageButNotDevices) {
  ReplayInput in = base();
  in.ranks = 2;
  EXPECT_NEAR(replay(in).images_per_s, 2 * 64 / 1e-3, 10);
  in.update_s = 0.1e-3;
  EXPECT_NEAR(replay(in).images_per_s, 2 / 10e-6, 0.01 / 10e-6);
  in.sample_s = 1e-6;
  in.bytes = {100e3};
  in.io_threads = 4;
  in.storage.bytes_per_s = 100e6;
  EXPECT_NEAR(replay(in).images_per_s, 1000, 20);
}

TEST(Replay, RefusesWhatNoRunCouldBe) {
  for (const auto& spoil : std::initializer_list<void (*)(ReplayInput&)>{
           [](ReplayInput& in) { in.cores = 0; }, [](ReplayInput& in) { in.samples = 0; },
           [](ReplayInput& in) { in.prefetch = 0; }, [](ReplayInput& in) { in.steps = 0; },
           [](ReplayInput& in) {
             in.drop_last = true;
             in.samples = 63;
           }}) {
    ReplayInput in = base();
    spoil(in);
    EXPECT_THROW(replay(in), std::invalid_argument);
  }
}

/// Returns a configuration of any kind, keyed by `index`.
ReplayInput any(std::uint32_t index) {
  std::mt19937 draw(index);
  const auto integer = [&draw](std::uint32_t below) { return static_cast<int>(draw() % below); };
  const auto between = [&draw](double low, double high) {
    return low + (high - low) * static_cast<double>(draw()) / 0x1p32;
  };
  ReplayInput in;
  in.cores = 1 + integer(8);
  in.workers = integer(6);
  in.io_threads = integer(3) * 2;
  in.prefetch = 1 + integer(8);
  in.batch = 1 + integer(40);
  in.samples = 1 + static_cast<std::uint64_t>(integer(400));
  in.sample_s = between(1e-6, 1e-3);
  in.read_s = between(0, 1e-4);
  in.batch_s = between(0, 1e-4);
  in.update_s = between(1e-4, 2e-2);
  in.update_threads = integer(3);
  in.frees_early = in.update_threads == 0;
  in.host_s = between(0, 1e-4);
  in.wake_s = between(0, 1e-4);
  in.crowding_stage = between(1, 1.5);
  in.crowding_update = between(1, 1.5);
  if (integer(2) == 1) {
    in.bytes = {1e4, 2e5, 5e4};
    in.storage = {between(1e7, 1e9), between(0, 5e-3), between(500, 1e5)};
  }
  if (integer(2) == 1) in.weights = {0.4, 1.6, 1.0};
  in.warm_up = 16;
  in.steps = 60;
  return in;
}

TEST(ReplayProperties, NoConfigurationBeatsItsResources) {
  for (std::uint32_t i = 0; i < 300; ++i) {
    const ReplayInput in = any(i);
    const ReplayOutput out = replay(in);
    SCOPED_TRACE(i);
    EXPECT_GE(out.update_s, in.update_s * (1 - 1e-9));
    EXPECT_LE(out.images_per_s, static_cast<double>(in.batch) / in.update_s * (1 + 1e-9));
    for (const double busy : {out.cores_busy, out.workers_busy, out.device_busy})
      EXPECT_LE(busy, 1 + 1e-9);
    EXPECT_GE(out.load_s, 0);
    const ReplayOutput again = replay(in);
    EXPECT_EQ(out.images_per_s, again.images_per_s);
  }
}

TEST(ReplayProperties, MoreOfAResourceIsNeverMuchWorse) {
  // Another order of events may cost a little: scheduling anomalies, which real runs have too.
  for (std::uint32_t i = 0; i < 150; ++i) {
    const ReplayInput in = any(i);
    const double rate = replay(in).images_per_s;
    SCOPED_TRACE(i);
    ReplayInput faster = in;
    faster.update_s /= 2;
    EXPECT_GE(replay(faster).images_per_s, 0.95 * rate);
    ReplayInput leaner = in;
    leaner.sample_s /= 2;
    EXPECT_GE(replay(leaner).images_per_s, 0.9 * rate);
    ReplayInput wider = in;
    wider.storage.bytes_per_s *= 2;
    wider.storage.requests_per_s *= 2;
    wider.storage.latency_s /= 2;
    EXPECT_GE(replay(wider).images_per_s, 0.9 * rate);
  }
}

TEST(ReplayProperties, TimesScaleTogether) {
  for (std::uint32_t i = 0; i < 100; ++i) {
    ReplayInput in = any(i);
    in.grain = 4;  // the loader's own choice depends on absolute time
    ReplayInput slow = in;
    for (double* time : {&slow.sample_s, &slow.read_s, &slow.batch_s, &slow.update_s, &slow.host_s,
                         &slow.wake_s, &slow.storage.latency_s})
      *time *= 3;
    slow.storage.bytes_per_s /= 3;
    slow.storage.requests_per_s /= 3;
    const double rate = replay(in).images_per_s;
    EXPECT_NEAR(replay(slow).images_per_s, rate / 3, 1e-4 * rate) << i;
  }
}

}  // namespace
}  // namespace millrace::predict
