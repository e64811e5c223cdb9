// Translates a recipe to strategy options.
#include "tools/training/strategy_setup.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/suggest.h"
#include "millrace/error.h"
#include "models/options.h"
#include "strategies/trainer/simulated.h"
#include "strategies/trainer/torch_library.h"
#include "tools/training/pipeline_setup.h"
#include "tools/training/rank_setup.h"

namespace millrace::tools {
namespace {

bool is_device(const std::string& name) {
  if (name == "cpu" || name == "cuda") return true;
  return name.starts_with("cuda:") && name.size() > 5 && name.size() < 9 &&
         std::all_of(name.begin() + 5, name.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// Returns the size of the batches whose steps are captured as a CUDA graph; 0: none.
std::int64_t graph_samples(const Recipe& recipe) {
  if (recipe.text("train.cuda_graphs") == "off") return 0;
  const auto refuse = [](const std::string& with, const char* why, const char* use) {
    throw UsageError(fmt::format("train.cuda_graphs=on with {}: {}", with, why),
                     fmt::format("set {}, or train.cuda_graphs=off", use));
  };
  const std::string& device = recipe.text("train.device");
  const std::string& strategy = recipe.text("train.strategy");
  const std::int64_t accumulate = recipe.integer("train.accumulate");
  if (device == "cpu" || is_simulated(recipe))
    refuse("train.device=" + device, "graphs need CUDA", "train.device=cuda");
  if (strategy != "single")
    refuse("train.strategy=" + strategy, "a graph covers the work of one device only",
           "train.strategy=single");
  if (accumulate > 1)
    refuse(fmt::format("train.accumulate={}", accumulate),
           "a graph overwrites gradients instead of adding to them", "train.accumulate=1");
  return recipe.integer("loader.batch");
}

}  // namespace

int cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

bool is_simulated(const Recipe& recipe) { return recipe.text("train.device") == "simulated"; }

bool is_on_cpu(const Recipe& recipe) { return recipe.text("train.device") == "cpu"; }

int threads_of(const Recipe& recipe, const train::RankInfo& rank) {
  const auto threads = recipe.integer("train.threads");
  if (threads > 0) return static_cast<int>(threads);
  const int left = cores() / rank.local_world - first_workers(recipe);
  const bool replicas = recipe.text("train.strategy") == "data_parallel";
  return std::max(1, left / (replicas ? static_cast<int>(recipe.integer("train.replicas")) : 1));
}

Recipe with_ops(Recipe recipe, int world) {
  if (recipe.text("model.ops") != "auto") return recipe;
  const bool replicas = recipe.text("train.strategy") == "data_parallel";
  const std::int64_t shares = world * (replicas ? recipe.integer("train.replicas") : 1);
  const std::int64_t batch = global_batch(recipe, world);
  const train::OpsQuestion question{.model = recipe.text("model.name"),
                                    .samples = (batch + shares - 1) / shares,
                                    .device = recipe.text("train.device"),
                                    .amp = recipe.text("train.amp"),
                                    .channels_last = recipe.text("train.channels_last"),
                                    .simd = base::simd_level()};
  recipe.set(train::prefers_native_ops(question) ? "model.ops=native" : "model.ops=torch");
  return recipe;
}

std::unique_ptr<train::Strategy> make_strategy(const Recipe& recipe, const Reader& reader,
                                               const SampleSpec& sample,
                                               const train::RankInfo& rank,
                                               train::RankHooks hooks) {
  const int inflight = recipe.text("train.clock") == "async"
                           ? static_cast<int>(recipe.integer("train.inflight"))
                           : 0;
  const std::int64_t graphs = graph_samples(recipe);
  if (is_simulated(recipe))
    return train::make_simulated(recipe.number("simulated.update_ms"), inflight);
  const std::string& device = recipe.text("train.device");
  if (!is_device(device)) {
    const std::vector<std::string> names{"cpu", "cuda", "cuda:0", "simulated"};
    throw UsageError(
        fmt::format("train.device={} is not a device", device),
        fmt::format("did you mean {}? cpu, cuda, cuda:N or simulated",
                    device.starts_with("gpu") ? "cuda" : base::nearest(device, names)));
  }
  if (inflight > 0 && device == "cpu")
    throw UsageError(
        "train.clock=async with train.device=cpu: the host is the device, so a step ends "
        "when its work does",
        "leave train.clock at sync, or set train.device=cuda");
  train::StrategyOptions options;
  options.inflight = inflight;
  options.graph_samples = graphs;
  options.model = recipe.text("model.name");
  options.model_options = {.variant = recipe.text("model.variant"),
                           .dropout = recipe.number("model.dropout"),
                           .init = recipe.text("model.init"),
                           .native_ops = recipe.text("model.ops") == "native"};
  options.weights = recipe.text("model.weights");
  options.classes = static_cast<int>(reader.info().classes.size());
  options.channels = sample.channels;
  options.input = sample.size;
  options.dtype = sample.dtype;
  options.normalize = recipe.text("output.normalize") == "device";
  options.mean = recipe.numbers("output.mean");
  options.std = recipe.numbers("output.std");
  if (sample.layout != Layout::chw)
    throw UsageError("output.layout=hwc: models take chw", "leave output.layout at its default");
  const bool each_its_own = device == "cuda" && recipe.text("train.strategy") == "ddp";
  options.device = each_its_own ? fmt::format("cuda:{}", rank.local_rank) : device;
  options.threads = threads_of(recipe, rank);
  options.seed = static_cast<std::uint64_t>(recipe.integer("seed"));
  options.optimizer = recipe.text("train.optimizer");
  options.momentum = recipe.number("train.momentum");
  options.nesterov = recipe.boolean("train.nesterov");
  options.beta1 = recipe.numbers("train.betas")[0];
  options.beta2 = recipe.numbers("train.betas")[1];
  options.eps = recipe.number("train.eps");
  options.weight_decay = recipe.number("train.weight_decay");
  options.clip = recipe.number("train.clip");
  options.label_smoothing = recipe.number("train.label_smoothing");
  options.ema = recipe.number("train.ema");
  options.amp = recipe.text("train.amp");
  options.tf32 = recipe.text("train.tf32");
  options.channels_last = recipe.text("train.channels_last");
  options.deterministic = recipe.boolean("train.deterministic");
  options.device_parts = recipe.boolean("train.device_parts");
  options.strategy = recipe.text("train.strategy");
  options.replicas = static_cast<int>(recipe.integer("train.replicas"));
  options.sync_batchnorm = recipe.boolean("train.sync_batchnorm");
  options.rank = rank;
  options.hooks = std::move(hooks);
  options.timeout = recipe.number("train.timeout");
  return train::make_torch_strategy(options);
}

}  // namespace millrace::tools
