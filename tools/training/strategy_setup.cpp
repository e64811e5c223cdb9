// Chooses the launcher's variables, raises the limit of open files, and makes a recipe's strategy.

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/available_cores.h"
#include "base/text.h"
#include "millrace/error.h"
#include "models/options.h"
#include "pipeline/loader/slice.h"
#include "pipeline/setup/loader_setup.h"
#include "strategies/trainer/simulated.h"
#include "strategies/trainer/torch_library.h"
#include "strategies/trainer/train_choices.h"
#include "tools/terminal/terminal.h"
#include "tools/training/setup.h"

namespace millrace::tools {
namespace {

const char* lookup(const char* name) { return std::getenv(name); }

/// Returns the ranks or replicas of this host.
int shares_of(const Recipe& recipe, const train::RankInfo& rank) {
  return train::strategy_of(recipe) == train::StrategyKind::data_parallel
             ? static_cast<int>(recipe.integer("train.replicas"))
             : rank.local_world;
}

/// Returns the cores that the ranks of this host share. MPI and Slurm may bind each rank to cores
/// of its own.
int shared_cores(const train::RankInfo& rank) {
  const bool may_bind = rank.world > 1 && rank.launcher != "torchrun";
  return may_bind ? static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)) : base::available_cores();
}

}  // namespace

int ranks_to_start(const Recipe& recipe) {
  const auto ranks = static_cast<int>(recipe.integer("train.ranks"));
  if (ranks == 0) return 0;
  if (train::strategy_of(recipe) != train::StrategyKind::ddp)
    throw UsageError(fmt::format("train.ranks={} with train.strategy={}: only ddp has ranks", ranks,
                                 recipe.text("train.strategy")),
                     "set train.strategy=ddp, or leave train.ranks out");
  if (is_simulated(recipe)) return 0;  // rank_of() rejects it
  const auto rank = train::rank_from_environment(lookup);
  if (!rank || (rank->launcher == "slurm" && rank->world == 1)) return ranks;
  return 0;
}

Recipe with_ranks(Recipe recipe, const train::RankInfo& rank) {
  const std::int64_t ranks = recipe.integer("train.ranks");
  if (ranks == 0 || ranks == rank.world) return recipe;
  say(fmt::format("train.ranks={}, but {} has started {}: the launcher decides", ranks,
                  rank.launcher, rank.world));
  recipe.set(fmt::format("train.ranks={}", rank.world));
  return recipe;
}

bool is_oversubscribed(const Recipe& recipe, const train::RankInfo& rank) {
  return shares_of(recipe, rank) > shared_cores(rank);
}

void warn_of_oversubscription(const Recipe& recipe, const train::RankInfo& rank) {
  if (!is_oversubscribed(recipe, rank)) return;
  const int shares = shares_of(recipe, rank);
  const int available = shared_cores(rank);
  say(fmt::format(
      "warning: {} {} share {} core{} and take turns: times are not those of {} devices", shares,
      rank.local_world > 1 ? "ranks" : "replicas", available, available == 1 ? "" : "s", shares));
}

void warn_of_idle_ranks(const Recipe& recipe, int world, int group) {
  const std::int64_t batch = pipeline::global_batch(recipe, world);
  int idle = 0;
  for (int rank = 0; rank < world; ++rank)
    if (pipeline::rank_slice(batch, rank, world, group).count == 0) ++idle;
  if (idle == 0) return;
  const bool per_rank = recipe.integer("loader.batch_per_rank") > 0;
  const std::int64_t served = std::max<std::int64_t>(1, batch / group);
  say(fmt::format(
      "warning: {} of {} ranks have nothing to do: a batch has {} samples{}; set {}={} or more{}",
      idle, world, batch,
      group > 1 ? fmt::format(", and the chain mixes groups of {}", group) : std::string(),
      per_rank ? "loader.batch_per_rank" : "loader.batch", per_rank ? group : world * group,
      per_rank ? std::string()
               : fmt::format(", or start {} rank{}", served, served == 1 ? "" : "s")));
}

train::RankInfo rank_of(const Recipe& recipe) {
  if (train::strategy_of(recipe) == train::StrategyKind::ddp) {
    if (is_simulated(recipe))
      throw UsageError("train.strategy=ddp with train.device=simulated: there is nothing to share",
                       "use train.device=cpu, or train.strategy=single");
    if (const auto rank = train::rank_from_environment(lookup)) return *rank;
    throw UsageError("train.strategy=ddp, but this process was not started as one of several ranks",
                     "set train.ranks=2, or try: millrace launch -n 2 -- train ... (or torchrun, "
                     "srun, mpirun)");
  }
  // Every process of a job has the job's environment: only variables that a launcher sets per rank
  // prove that a rank was started.
  if (lookup("RANK") == nullptr || lookup("WORLD_SIZE") == nullptr) return {};
  train::RankInfo info = train::rank_from_environment(lookup).value_or(train::RankInfo{});
  if (info.world == 1 || is_simulated(recipe)) return info;
  throw UsageError(
      fmt::format("train.strategy={}, but {} ranks were started", recipe.text("train.strategy"),
                  info.world),
      "set train.strategy=ddp to share the work, or start millrace train without a launcher");
}

void allow_descriptors(int ranks) {
  constexpr rlim_t kOfOne = 40;      // descriptors of LibTorch, the records and a data set
  constexpr rlim_t kOfEachPeer = 6;  // rank 0 has most: store, control channel, Gloo
  constexpr rlim_t kSpare = 64;      // connections of strangers, before they are closed
  const rlim_t least = kOfOne + kOfEachPeer * static_cast<rlim_t>(ranks - 1);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= least + kSpare) return;
  rlimit raised = limit;
  raised.rlim_cur = std::min(limit.rlim_max, least + kSpare);
  if (raised.rlim_cur > limit.rlim_cur && setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  if (limit.rlim_cur < least)
    throw RunError(fmt::format("each of {} ranks needs up to {} open files, but the limit is {}",
                               ranks, least, limit.rlim_cur),
                   "raise it in this shell: ulimit -n 1024");
}

namespace {

bool is_device(const std::string& name) {
  if (name == "cpu" || name == "cuda") return true;
  return name.starts_with("cuda:") && name.size() > 5 && name.size() < 9 &&
         std::all_of(name.begin() + 5, name.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// Returns the device of a rank, by its number where ranks have one each.
std::string device_of(const Recipe& recipe, const train::RankInfo& rank) {
  const std::string& device = recipe.text("train.device");
  const bool each_its_own =
      device == "cuda" && train::strategy_of(recipe) == train::StrategyKind::ddp;
  return each_its_own ? fmt::format("cuda:{}", rank.local_rank) : device;
}

}  // namespace

bool is_simulated(const Recipe& recipe) { return recipe.text("train.device") == "simulated"; }

bool is_evaluated(const Recipe& recipe) {
  return !is_simulated(recipe) && recipe.text("eval.split") != "none";
}

const std::string& evaluation_split(const Recipe& recipe) {
  const std::string& split = recipe.text("eval.split");
  if (split == "none")
    throw UsageError("eval.split=none: there is no split to evaluate", "add eval.split=test");
  return split;
}

bool is_on_cpu(const Recipe& recipe) { return recipe.text("train.device") == "cpu"; }

int threads_of(const Recipe& recipe, const train::RankInfo& rank) {
  const auto threads = recipe.integer("train.threads");
  if (threads > 0) return static_cast<int>(threads);
  const int left = base::available_cores() / rank.local_world - pipeline::first_workers(recipe);
  const bool replicas = train::strategy_of(recipe) == train::StrategyKind::data_parallel;
  return std::max(1, left / (replicas ? static_cast<int>(recipe.integer("train.replicas")) : 1));
}

Recipe with_ops(Recipe recipe, int world) {
  if (train::ops_of(recipe) != train::ModelOps::automatic) return recipe;
  const bool replicas = train::strategy_of(recipe) == train::StrategyKind::data_parallel;
  const std::int64_t shares = world * (replicas ? recipe.integer("train.replicas") : 1);
  const std::int64_t batch = pipeline::global_batch(recipe, world);
  const train::OpsQuestion question{.model = recipe.text("model.name"),
                                    .samples = (batch + shares - 1) / shares,
                                    .device = recipe.text("train.device"),
                                    .amp = recipe.text("train.amp"),
                                    .channels_last = recipe.text("train.channels_last"),
                                    .simd = base::simd_level()};
  recipe.set(train::prefers_native_ops(question) ? "model.ops=native" : "model.ops=torch");
  return recipe;
}

std::future<void> load_strategy_ahead(const Recipe& recipe, const train::RankInfo& rank) {
  if (is_simulated(recipe) || !is_device(recipe.text("train.device"))) return {};
  return train::load_torch_ahead(device_of(recipe, rank));
}

void check_cuda_graphs(const Recipe& recipe) {
  const std::string& graphs = recipe.text("train.cuda_graphs");
  if (graphs == "off") return;
  const auto refuse = [&graphs](const std::string& with, const char* why, const char* use) {
    throw UsageError(fmt::format("train.cuda_graphs={} with {}: {}", graphs, with, why),
                     fmt::format("set {}, or train.cuda_graphs=off", use));
  };
  const std::string& device = recipe.text("train.device");
  const std::int64_t accumulate = recipe.integer("train.accumulate");
  if (device == "cpu" || is_simulated(recipe))
    refuse("train.device=" + device, "graphs need CUDA", "train.device=cuda");
  if (train::strategy_of(recipe) == train::StrategyKind::data_parallel)
    refuse("train.strategy=data_parallel", "a graph covers the work of one device only",
           "train.strategy=single, or ddp with train.cuda_graphs=step");
  if (train::strategy_of(recipe) == train::StrategyKind::ddp && graphs == "on")
    refuse("train.strategy=ddp", "the sums over the ranks are part of a whole step only",
           "train.cuda_graphs=step");
  if (accumulate > 1)
    refuse(fmt::format("train.accumulate={}", accumulate),
           "a graph overwrites gradients instead of adding to them", "train.accumulate=1");
}

std::unique_ptr<train::Strategy> make_strategy(const Recipe& recipe, const Reader& reader,
                                               const SampleSpec& sample,
                                               std::optional<Size> eval_size,
                                               const train::RankInfo& rank,
                                               train::RankHooks hooks) {
  const int inflight = train::inflight_of(recipe);
  check_cuda_graphs(recipe);
  if (is_simulated(recipe))
    return train::make_simulated(recipe.number("simulated.update_ms"), inflight);
  const std::string& device = recipe.text("train.device");
  if (!is_device(device)) {
    const std::vector<std::string> names{"cpu", "cuda", "cuda:0", "simulated"};
    throw UsageError(fmt::format("train.device={} is not a device", device),
                     fmt::format("did you mean {}? cpu, cuda, cuda:N or simulated",
                                 base::nearest(device.substr(0, device.find(':')), names)));
  }
  if (inflight > 0 && device == "cpu")
    throw UsageError(
        "train.clock=async with train.device=cpu: the host is the device, so a step ends "
        "when its work does",
        "leave train.clock at sync, or set train.device=cuda");
  if (recipe.boolean("train.deterministic") && recipe.boolean("train.cudnn_benchmark"))
    throw UsageError(
        "train.cudnn_benchmark=true with train.deterministic=true: the fastest algorithm may be "
        "another one in the next run",
        "set one of the two to false");
  const bool graphs = recipe.text("train.cuda_graphs") != "off";
  return train::make_torch_strategy(
      {.recipe = recipe,
       .classes = static_cast<int>(reader.info().classes.size()),
       .sample = sample,
       .eval_size = eval_size,
       .device = device_of(recipe, rank),
       .threads = threads_of(recipe, rank),
       .graph_samples = graphs ? pipeline::global_batch(recipe, rank.world) : 0,
       .rank = rank,
       .hooks = std::move(hooks)});
}

}  // namespace millrace::tools
