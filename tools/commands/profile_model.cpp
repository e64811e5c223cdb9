// Measures what loading demands, and fills the replay's input from recipes and measurements.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <thread>

#include "augment/plan/plan_setup.h"
#include "base/available_cores.h"
#include "base/clock.h"
#include "pipeline/readers/storage.h"
#include "pipeline/setup/choices.h"
#include "pipeline/setup/data_setup.h"
#include "pipeline/setup/loader_setup.h"
#include "predict/interval.h"
#include "study/analysis/whatif.h"
#include "tools/commands/profile.h"
#include "tools/terminal/terminal.h"
#include "tools/training/setup.h"

namespace millrace::tools {

// Runs a loader alone and reads CPU clocks.

namespace {

constexpr std::uint64_t kEndless = 1'000'000'000;

double seconds_since(std::int64_t ns) {
  return static_cast<double>(base::Clock::steady_ns() - ns) * 1e-9;
}

/// Returns the CPU time of all threads but the calling one.
std::int64_t others_cpu_ns() {
  return base::Clock::process_cpu_ns() - base::Clock::thread_cpu_ns();
}

double spread_of(const std::vector<double>& batches, double samples_a_batch) {
  // Uses the middle batches: interruptions make single batches long.
  std::vector<double> from_middle;
  const double middle = predict::median(batches);
  for (const double one : batches) from_middle.push_back(std::abs(one - middle));
  const double deviation = 1.4826 * predict::median(std::move(from_middle));
  return middle > 0 ? deviation / middle * std::sqrt(samples_a_batch) : 0;
}

/// Returns how far the smallest or the largest value is from the median, relative to it.
double range_of(const std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const double middle = predict::median(values);
  return middle > 0 && *least > 0 ? std::max(middle / *least, *most / middle) - 1 : 0;
}

}  // namespace

LoaderProbe::LoaderProbe(const Recipe& recipe, std::shared_ptr<const Reader> reader)
    : reader_(std::move(reader)),
      transform_(augment::make_training_plan(recipe, *reader_)),
      options_(pipeline::loader_options(recipe, nullptr)) {
  check_batch(options_, *reader_);
  options_.io_threads = 0;
  options_.epochs = kEndless;
  options_.stop = &interrupted();
}

ProbeFigures LoaderProbe::measure(int workers, double seconds, double pause_s) const {
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
  std::int64_t paused_cpu_ns = 0;
  std::uint64_t batches = 0;
  std::vector<double> costs;
  std::int64_t last = cpu_begin;
  while (Batch batch = loader.next()) {
    images += batch.count();
    ++batches;
    if (workers == 0) {
      const std::int64_t now = base::Clock::thread_cpu_ns();
      if (batch.count() == options.batch) costs.push_back(static_cast<double>(now - last));
      if (pause_s > 0) std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
      last = base::Clock::thread_cpu_ns();
      paused_cpu_ns += last - now;
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
  figures.cpu_s = static_cast<double>(cpu_end - cpu_begin - paused_cpu_ns) * 1e-9 /
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
       {"loader.workers=1", "loader.prefetch=4", "loader.io_threads=0", "data.remote.fetch=auto",
        "data.storage.bandwidth=0", "data.storage.latency=0", "data.storage.iops=0",
        "simulated.update_ms=1"})
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
  return predict::median(std::move(trips)) / 2;
}

ProfileModel::ProfileModel(const Recipe& recipe, std::shared_ptr<const Reader> reader,
                           std::shared_ptr<const Reader> some, const RequestCost& requests)
    : reader_(std::move(reader)),
      probed_(some != nullptr ? std::move(some) : reader_),
      requests_(requests),
      base_key_(LoaderProbe::key_of(recipe)),
      sizes_(sample_sizes(*probed_)),
      wake_s_(wake_up_s()) {
  add(recipe);
}

void ProfileModel::add(const Recipe& recipe) {
  const std::string key = LoaderProbe::key_of(recipe);
  if (!probes_.contains(key)) probes_.emplace(key, LoaderProbe(recipe, probed_));
}

void ProfileModel::add(const std::string& packing, const Recipe& recipe,
                       std::shared_ptr<const Reader> packed, std::shared_ptr<const Reader> plain) {
  constexpr const char* kPlain = "plain";
  if (!probes_.contains(kPlain)) probes_.emplace(kPlain, LoaderProbe(recipe, std::move(plain)));
  probes_.emplace(packing, LoaderProbe(recipe, std::move(packed)));
  plain_of_[packing] = kPlain;
}

std::size_t ProfileModel::probes(int rounds) const {
  // The base is also measured on the trainer's own thread, and on all cores if there are several.
  return static_cast<std::size_t>(rounds) *
         (probes_.size() + (base::available_cores() > 1 ? 2 : 1));
}

void ProfileModel::probe(double seconds, int rounds, double idle_s) {
  struct Rounds {
    std::vector<double> cpu, read, decode, augment;
  };
  std::map<std::string, Rounds> measured;
  std::vector<double> inline_part, crowding, spread, take;
  const LoaderProbe& base = probes_.at(base_key_);
  for (int round = 0; round < rounds; ++round) {
    // Takes ratios within a round, because the machine drifts little in that time.
    double alone = 0;
    for (const auto& [key, probe] : probes_) {
      const ProbeFigures one = probe.measure(1, seconds);
      Rounds& to = measured[key];
      to.cpu.push_back(one.cpu_s);
      to.read.push_back(one.read_part);
      to.decode.push_back(one.decode_part);
      to.augment.push_back(one.augment_part);
      if (key != base_key_) continue;
      alone = one.cpu_s;
      take.push_back(one.take_s);
    }
    const ProbeFigures serial = base.measure(0, seconds, idle_s);
    inline_part.push_back(serial.cpu_s / alone);
    spread.push_back(serial.spread);
    if (base::available_cores() > 1)
      crowding.push_back(base.measure(base::available_cores(), seconds).cpu_s / alone);
  }
  demand_error_ = range_of(measured.at(base_key_).cpu);
  for (auto& [key, one] : measured) {
    const double cpu = predict::median(std::move(one.cpu));
    LoaderDemand& demand = demands_[key];
    demand.stages = {.read_s = cpu * predict::median(std::move(one.read)),
                     .decode_s = cpu * predict::median(std::move(one.decode)),
                     .augment_s = cpu * predict::median(std::move(one.augment))};
    demand.stages.machinery_s = std::max(0.0, cpu - demand.stages.total());
    demand.inline_s = cpu * predict::median(inline_part);
  }
  // The packed samples are a part of the set. What the set's own cost more or less, its packed ones
  // do too; reading from an archive costs the same whatever the set is.
  const study::StageDemand& whole = demands_.at(base_key_).stages;
  for (const auto& [packing, plain] : plain_of_) {
    const study::StageDemand& part = demands_.at(plain).stages;
    const double scale =
        (whole.decode_s + whole.augment_s) / std::max(1e-12, part.decode_s + part.augment_s);
    study::StageDemand& stages = demands_.at(packing).stages;
    stages.decode_s *= scale;
    stages.augment_s *= scale;
    stages.machinery_s = whole.machinery_s;
    demands_.at(packing).inline_s = stages.total() * predict::median(inline_part);
  }
  take_s_ = predict::median(std::move(take));
  spread_ = predict::median(std::move(spread));
  weights_ = demand_weights(spread_);
  if (!crowding.empty()) crowding_stage_ = std::max(1.0, predict::median(std::move(crowding)));
}

void ProfileModel::set_host(double host_s, double io_read_s) {
  host_s_ = host_s;
  io_read_s_ = io_read_s;
}

const LoaderDemand& ProfileModel::demand(const Recipe& recipe) const {
  return demands_.at(LoaderProbe::key_of(recipe));
}

std::string ProfileModel::device_key(const Recipe& recipe) const {
  const SampleSpec& sample = probes_.at(LoaderProbe::key_of(recipe)).output();
  std::string key = fmt::format("{}x{}x{}x{}", recipe.integer("loader.batch"), sample.channels,
                                sample.size.height, sample.size.width);
  for (const Param& one : recipe_keys()) {
    const std::string_view name = one.name;
    if (name.starts_with("train.") || name.starts_with("model.") || name.starts_with("output."))
      key += fmt::format(" {}={}", name, recipe.value(one.name));
  }
  return key;
}

predict::ReplayInput ProfileModel::input(const Recipe& recipe) const {
  return input(recipe, demand(recipe));
}

predict::ReplayInput ProfileModel::input(const Recipe& recipe, const LoaderDemand& demand) const {
  const auto storage = pipeline::emulated_storage(recipe);
  const LoaderOptions options = pipeline::loader_options(recipe, storage);
  predict::ReplayInput in;
  in.cores = base::available_cores();
  in.workers = options.workers;
  in.io_threads = options.io_threads;
  in.prefetch = options.prefetch;
  in.batch = options.batch;
  in.samples = epoch_samples(options, reader_->info().count);
  in.drop_last = options.drop_last;
  in.grain = options.grain;
  const double all = options.workers > 0 ? demand.stages.total() : demand.inline_s;
  in.read_s = std::min(demand.stages.read_s, all);
  in.sample_s = all - in.read_s;
  if (options.io_threads > 0 && io_read_s_ > 0) in.read_s = io_read_s_;
  in.weights = weights_;
  if (storage != nullptr && pipeline::cache_of(recipe) != Cache::ram) {
    in.bytes = sizes_;
    const pipeline::StorageOptions& limits = storage->options();
    in.storage = {limits.bytes_per_s, limits.latency_s, limits.requests_per_s};
  } else if (reader_->info().requested && pipeline::cache_of(recipe) != Cache::ram) {
    // A request keeps one connection busy, and no other.
    in.bytes = sizes_;
    in.storage.latency_s = std::max(0.0, requests_.first_byte_s + requests_.transfer_s - in.read_s);
  }
  in.update_threads = update_threads_;
  in.update_s = is_simulated(recipe) ? recipe.number("simulated.update_ms") * 1e-3
                                     : update_s_.at(device_key(recipe));
  in.frees_early = update_threads_ == 0;  // on the CPU the model reads the slot itself
  in.host_s = host_s_;
  in.wake_s = wake_s_;
  in.take_s = take_s_;
  in.crowding_stage = crowding_stage_;
  in.crowding_update = crowding_update_;
  return in;
}

predict::ReplayInput ProfileModel::input(const Recipe& recipe, const study::Change& change) const {
  predict::ReplayInput in =
      change.packing ? input(recipe, demands_.at(change.packing->text())) : input(recipe);
  if (change.packing)
    for (double& bytes : in.bytes) bytes *= change.packing->bytes;
  if (change.cores > 0) in.cores = change.cores;
  if (change.decode_free) in.sample_s = std::max(0.0, in.sample_s - demand(recipe).stages.decode_s);
  // A mapped archive is read without system calls. The storage still serves one read per sample.
  if (change.packed) in.read_s = 0;
  if (change.first_byte != 1) {
    const double less_s = (1 - change.first_byte) * requests_.first_byte_s;
    in.storage.latency_s = std::max(0.0, in.storage.latency_s - less_s);
  }
  if (change.cached) {
    in.bytes.clear();
    in.storage = {};
    in.read_s = requests_.local_read_s;
  }
  in.update_s /= change.device_speed;
  // A faster device is a different one: it takes no CPU.
  if (change.device_speed != 1) in.update_threads = 0;
  return in;
}

void ProfileModel::fit_crowding(const Recipe& recipe, double measured_update_s) {
  double low = 1;
  double high = 2;
  for (int i = 0; i < 12; ++i) {
    crowding_update_ = (low + high) / 2;
    (predict::replay(input(recipe)).update_s < measured_update_s ? low : high) = crowding_update_;
  }
}

}  // namespace millrace::tools
