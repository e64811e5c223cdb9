// Runs a loader alone and reads CPU clocks.
#include "tools/commands/profile_probe.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/clock.h"
#include "study/analysis/whatif.h"
#include "tools/terminal/interrupt.h"
#include "tools/training/pipeline_setup.h"

namespace millrace::tools {
namespace {

constexpr std::uint64_t kEndless = 1'000'000'000;

double seconds_since(std::int64_t ns) {
  return static_cast<double>(base::Clock::steady_ns() - ns) * 1e-9;
}

/// Takes deviations from the median, because interruptions make single batches long.
std::int64_t others_cpu_ns() {
  return base::Clock::process_cpu_ns() - base::Clock::thread_cpu_ns();
}

double spread_of(const std::vector<double>& batches, double samples_a_batch) {
  // Uses the middle batches: interruptions make single batches long.
  std::vector<double> from_middle;
  const double middle = study::middle_of(batches);
  for (const double one : batches) from_middle.push_back(std::abs(one - middle));
  const double deviation = 1.4826 * study::middle_of(std::move(from_middle));
  return middle > 0 ? deviation / middle * std::sqrt(samples_a_batch) : 0;
}

}  // namespace

LoaderProbe::LoaderProbe(const Recipe& recipe, std::shared_ptr<const Reader> reader)
    : reader_(std::move(reader)),
      transform_(make_plan(recipe, recipe.augment(), *reader_)),
      options_(loader_options(recipe, nullptr)) {
  check_batch(options_, reader_->info());
  options_.io_threads = 0;
  options_.epochs = kEndless;
  options_.stop = &interrupted();
}

ProbeFigures LoaderProbe::measure(int workers, double seconds) const {
  LoaderOptions options = options_;
  options.workers = workers;
  Loader loader(reader_, transform_, options);
  const std::uint64_t epoch = loader.batches_per_epoch();
  for (int i = 0; i <= options.prefetch; ++i) loader.next();  // the graph is now running

  const LoaderStats before = loader.stats();
  const std::int64_t begin = base::Clock::steady_ns();
  const std::int64_t cpu_begin = workers > 0 ? others_cpu_ns() : base::Clock::thread_cpu_ns();
  const std::int64_t own_begin = base::Clock::thread_cpu_ns();
  std::int64_t images = 0;
  std::uint64_t batches = 0;
  std::vector<double> costs;
  std::int64_t last = cpu_begin;
  while (Batch batch = loader.next()) {
    images += batch.count();
    ++batches;
    if (workers == 0 && batch.count() == options.batch) {
      const std::int64_t now = base::Clock::thread_cpu_ns();
      costs.push_back(static_cast<double>(now - std::exchange(last, now)));
    } else if (workers == 0) {
      last = base::Clock::thread_cpu_ns();
    }
    const double passed = seconds_since(begin);
    const bool whole = batches % epoch == 0;
    if (passed >= seconds &&
        (whole || passed * static_cast<double>(epoch) > 2 * seconds * static_cast<double>(batches)))
      break;
  }
  const std::int64_t cpu_end = workers > 0 ? others_cpu_ns() : base::Clock::thread_cpu_ns();
  const std::int64_t own_end = base::Clock::thread_cpu_ns();
  const LoaderStats after = loader.stats();
  const double read = after.read.wall_s - before.read.wall_s;
  const double decode = after.decode.wall_s - before.decode.wall_s;
  const double augment = after.augment.wall_s - before.augment.wall_s;
  ProbeFigures figures;
  figures.cpu_s = static_cast<double>(cpu_end - cpu_begin) * 1e-9 /
                  static_cast<double>(std::max<std::int64_t>(1, images));
  if (workers > 0)
    figures.take_s = static_cast<double>(own_end - own_begin) * 1e-9 / static_cast<double>(batches);
  // On one core the stages' wall time is CPU time, except for other processes' share. The rest is
  // the graph's.
  const double stages = std::max(read + decode + augment, 1e-12);
  const double all = std::max(stages, figures.cpu_s * static_cast<double>(images));
  figures.read_part = read / all;
  figures.decode_part = decode / all;
  figures.augment_part = augment / all;
  if (costs.size() >= 8) figures.spread = spread_of(costs, static_cast<double>(options.batch));
  return figures;
}

std::string LoaderProbe::key_of(const Recipe& recipe) {
  Recipe same = recipe;
  for (const char* fixed :
       {"loader.workers=1", "loader.prefetch=4", "loader.io_threads=0", "data.storage.bandwidth=0",
        "data.storage.latency=0", "data.storage.iops=0", "simulated.update_ms=1"})
    same.set(fixed);
  return same.to_toml();
}

std::vector<double> sample_sizes(const Reader& reader) {
  constexpr std::uint64_t kMax = 1024;
  const std::uint64_t count = reader.info().count;
  const std::uint64_t taken = std::min(count, kMax);
  std::vector<double> sizes;
  Buffer buffer;
  for (std::uint64_t i = 0; i < taken; ++i)
    sizes.push_back(static_cast<double>(reader.read(i * count / taken, buffer).bytes.size()));
  return sizes;
}

std::vector<double> demand_weights(double spread) {
  if (spread < 0.01) return {};
  const double sigma = std::sqrt(std::log1p(spread * spread));
  std::vector<double> weights;
  // A sum of twelve uniform numbers is nearly normal.
  std::uint32_t state = 12345;
  for (int i = 0; i < 1021; ++i) {
    double normal = -6;
    for (int k = 0; k < 12; ++k) {
      state = state * 1664525u + 1013904223u;
      normal += static_cast<double>(state) / 0x1p32;
    }
    weights.push_back(std::exp(sigma * normal));
  }
  const double mean =
      std::accumulate(weights.begin(), weights.end(), 0.0) / static_cast<double>(weights.size());
  for (double& weight : weights) weight /= mean;
  return weights;
}

double wake_up_s() {
  constexpr int kTrips = 200;
  std::mutex mutex;
  std::condition_variable called;
  int turn = 0;
  std::vector<double> trips;
  const auto play = [&](int self, const auto& each) {
    for (int i = 0; i < kTrips; ++i) {
      std::unique_lock lock(mutex);
      called.wait(lock, [&] { return turn == self; });
      each();
      turn = 1 - self;
      called.notify_one();
    }
  };
  std::thread other([&] { play(1, [] {}); });
  std::int64_t last = base::Clock::steady_ns();
  play(0, [&] {
    const std::int64_t now = base::Clock::steady_ns();
    trips.push_back(static_cast<double>(now - std::exchange(last, now)) * 1e-9);
  });
  other.join();
  return study::middle_of(std::move(trips)) / 2;
}

}  // namespace millrace::tools
