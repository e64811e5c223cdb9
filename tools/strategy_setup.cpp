#include "tools/strategy_setup.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cctype>

#include "pipeline/error.h"
#include "pipeline/suggest.h"
#include "strategies/simulated.h"
#include "strategies/torch_library.h"

namespace millrace {
namespace {

/// Cores that this process may run on.
int cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

bool is_device(const std::string& name) {
  if (name == "cpu" || name == "cuda") return true;
  return name.starts_with("cuda:") && name.size() > 5 && name.size() < 9 &&
         std::all_of(name.begin() + 5, name.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

}  // namespace

bool is_simulated(const Recipe& recipe) { return recipe.text("train.device") == "simulated"; }

int threads_of(const Recipe& recipe) {
  const auto threads = recipe.integer("train.threads");
  if (threads > 0) return static_cast<int>(threads);
  return std::max(1, cores() - static_cast<int>(recipe.integer("loader.workers")));
}

std::unique_ptr<Strategy> make_strategy(const Recipe& recipe, const Reader& reader,
                                        const SampleSpec& sample) {
  if (is_simulated(recipe)) return make_simulated(recipe.number("simulated.update_ms"));
  const std::string& device = recipe.text("train.device");
  if (!is_device(device)) {
    const std::vector<std::string> names{"cpu", "cuda", "cuda:0", "simulated"};
    throw UsageError(
        fmt::format("train.device={} is not a device", device),
        fmt::format("did you mean {}? cpu, cuda, cuda:N or simulated", nearest(device, names)));
  }
  StrategyOptions options;
  options.model = recipe.text("model.name");
  options.weights = recipe.text("model.weights");
  options.native_ops = recipe.text("model.ops") == "native";
  options.classes = static_cast<int>(reader.info().classes.size());
  options.channels = sample.channels;
  options.input = sample.size;
  options.dtype = sample.dtype;
  if (sample.layout != Layout::chw)
    throw UsageError("output.layout=hwc: models take chw", "leave output.layout at its default");
  options.device = device;
  options.threads = threads_of(recipe);
  options.seed = static_cast<std::uint64_t>(recipe.integer("seed"));
  options.optimizer = recipe.text("train.optimizer");
  options.lr = recipe.number("train.lr");
  options.momentum = recipe.number("train.momentum");
  options.weight_decay = recipe.number("train.weight_decay");
  options.nesterov = recipe.boolean("train.nesterov");
  return make_single(options);
}

}  // namespace millrace
