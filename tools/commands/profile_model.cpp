// Probes loaders, and fills the replay's input from recipes and measurements.
#include "tools/commands/profile_model.h"

#include <algorithm>

#include "pipeline/readers/storage_model.h"
#include "tools/training/pipeline_setup.h"
#include "tools/training/strategy_setup.h"

namespace millrace::tools {

ProfileModel::ProfileModel(const Recipe& recipe, std::shared_ptr<const Reader> reader)
    : reader_(std::move(reader)),
      base_key_(LoaderProbe::key_of(recipe)),
      sizes_(sample_sizes(*reader_)),
      wake_s_(wake_up_s()) {
  add(recipe);
}

void ProfileModel::add(const Recipe& recipe) {
  const std::string key = LoaderProbe::key_of(recipe);
  if (!probes_.contains(key)) probes_.emplace(key, LoaderProbe(recipe, reader_));
}

void ProfileModel::probe(double seconds, int rounds) {
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
    const ProbeFigures serial = base.measure(0, seconds);
    inline_part.push_back(serial.cpu_s / alone);
    spread.push_back(serial.spread);
    if (cores() > 1) crowding.push_back(base.measure(cores(), seconds).cpu_s / alone);
  }
  for (auto& [key, one] : measured) {
    const double cpu = study::middle_of(std::move(one.cpu));
    LoaderDemand& demand = demands_[key];
    demand.stages = {.read_s = cpu * study::middle_of(std::move(one.read)),
                     .decode_s = cpu * study::middle_of(std::move(one.decode)),
                     .augment_s = cpu * study::middle_of(std::move(one.augment))};
    demand.stages.machinery_s = std::max(0.0, cpu - demand.stages.total());
    demand.inline_s = cpu * study::middle_of(inline_part);
  }
  take_s_ = study::middle_of(std::move(take));
  spread_ = study::middle_of(std::move(spread));
  weights_ = demand_weights(spread_);
  if (!crowding.empty()) crowding_stage_ = std::max(1.0, study::middle_of(std::move(crowding)));
}

void ProfileModel::set_host(double host_s, double io_read_s) {
  host_s_ = host_s;
  io_read_s_ = io_read_s;
}

const LoaderDemand& ProfileModel::demand(const Recipe& recipe) const {
  return demands_.at(LoaderProbe::key_of(recipe));
}

study::ReplayInput ProfileModel::input(const Recipe& recipe) const {
  const auto storage = emulated_storage(recipe);
  const LoaderOptions options = loader_options(recipe, storage);
  const LoaderDemand& demand = this->demand(recipe);
  study::ReplayInput in;
  in.cores = cores();
  in.workers = options.workers;
  in.io_threads = options.io_threads;
  in.prefetch = options.prefetch;
  in.batch = options.batch;
  in.samples = reader_->info().count;
  in.drop_last = options.drop_last;
  in.grain = options.grain;
  const double all = options.workers > 0 ? demand.stages.total() : demand.inline_s;
  in.read_s = std::min(demand.stages.read_s, all);
  in.sample_s = all - in.read_s;
  if (options.io_threads > 0 && io_read_s_ > 0) in.read_s = io_read_s_;
  in.weights = weights_;
  if (storage != nullptr && recipe.text("data.cache") != "ram") {
    in.bytes = sizes_;
    const pipeline::StorageOptions& limits = storage->options();
    in.storage = {limits.bytes_per_s, limits.latency_s, limits.requests_per_s};
  }
  in.update_threads = update_threads_;
  in.update_s = is_simulated(recipe) ? recipe.number("simulated.update_ms") * 1e-3
                                     : update_s_.at(options.batch);
  in.frees_early = update_threads_ == 0;  // on the CPU the model reads the slot itself
  in.host_s = host_s_;
  in.wake_s = wake_s_;
  in.take_s = take_s_;
  in.crowding_stage = crowding_stage_;
  in.crowding_update = crowding_update_;
  return in;
}

study::ReplayInput ProfileModel::input(const Recipe& recipe, const study::Change& change) const {
  study::ReplayInput in = input(recipe);
  if (change.cores > 0) in.cores = change.cores;
  if (change.decode_free) in.sample_s = std::max(0.0, in.sample_s - demand(recipe).stages.decode_s);
  // A mapped archive is read without system calls. The storage still serves one read per sample.
  if (change.packed) in.read_s = 0;
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
    (study::replay(input(recipe)).update_s < measured_update_s ? low : high) = crowding_update_;
  }
}

}  // namespace millrace::tools
