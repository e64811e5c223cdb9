// From the words of a command line to what runs: the recipe, the data set, this process's rank and
// the strategy.
#pragma once

#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/reader.h"
#include "millrace/recipe.h"
#include "millrace/transform.h"
#include "pipeline/setup/load_recipe.h"
#include "strategies/control/rank.h"
#include "strategies/trainer/strategy.h"
#include "strategies/trainer/strategy_options.h"
#include "study/records/summary.h"

namespace millrace::tools {

// Loads recipes and data sets for the program.

/// Returns the folders of shipped recipes: under the installation that the program is part of, or
/// in the build folder.
std::vector<std::filesystem::path> recipe_folders();

/// A run's copy of the recipe that it began with, if that is not a shipped one.
inline constexpr const char* kOwnRecipe = "recipe.toml";

/// Loads the recipe of "[RECIPE] [key=value ...]" with the plugins that the user asked for
/// (tools/plugins/grants.h).
Recipe load_recipe(const std::vector<std::string>& arguments,
                   pipeline::Plugins plugins = pipeline::Plugins::asked);

/// Returns `plugins` for records: id, version and file (null: built in) of every plugin whose units
/// may have been used.
std::vector<study::PluginRecord> plugin_records();

/// Opens the data set's `split` as pipeline::open_data() does, with remarks on stderr. The
/// program's own flag stops it. A run whose ranks agree on where to stop has StopAt::failure.
std::shared_ptr<const Reader> open_data(const Recipe& recipe, const std::string& split,
                                        std::size_t classes = 0, StopAt at = StopAt::once);

// Determines this process's rank in a distributed run.

/// Returns the rank: for train.strategy=ddp from the environment; for a simulated device from the
/// variables of torchrun and `millrace launch` alone; otherwise rank 0 of 1. Throws UsageError as
/// rank_from_environment() does, if no launcher has started a rank of ddp, and if one has started
/// several of a strategy without ranks.
train::RankInfo rank_of(const Recipe& recipe);

/// Returns the number of ranks that this process has to start: train.ranks with train.strategy=ddp,
/// unless a launcher has started this process as a rank. Otherwise returns 0. The single task of a
/// Slurm batch script is not a rank here. Throws UsageError for train.ranks without ddp.
int ranks_to_start(const Recipe& recipe);

/// Returns the recipe with the number of ranks that run in train.ranks, if that is set. Says so if
/// the launcher started another number.
Recipe with_ranks(Recipe recipe, const train::RankInfo& rank);

/// Returns whether the ranks or replicas on this host are more than its cores, so that they take
/// turns.
bool is_oversubscribed(const Recipe& recipe, const train::RankInfo& rank);
/// Prints a warning if they are.
void warn_of_oversubscription(const Recipe& recipe, const train::RankInfo& rank);

/// Prints a warning if some of `world` ranks have no sample of a whole batch: ranks take whole
/// groups of `group` samples, which ops mix.
void warn_of_idle_ranks(const Recipe& recipe, int world, int group);

/// Raises the limit of open files to the needs of a rank in a run of `ranks`. Throws RunError if it
/// cannot, because c10d calls abort() in a process that runs out of descriptors.
void allow_descriptors(int ranks);

// Makes the strategy that a recipe asks for.

/// Throws UsageError if train.cuda_graphs cannot work with the recipe's other keys.
void check_cuda_graphs(const Recipe& recipe);

/// Throws UsageError for a data set of boxes or masks: the trainer needs a class for each image.
void check_labels(const Reader& reader);

bool is_simulated(const Recipe& recipe);

/// Returns whether a training evaluates its model: not without a model, nor with eval.split=none.
bool is_evaluated(const Recipe& recipe);

/// Returns the split that eval.split names. Throws UsageError if it is none.
const std::string& evaluation_split(const Recipe& recipe);
bool is_on_cpu(const Recipe& recipe);
/// Returns train.threads, or by default the cores of the host that are left to each rank and
/// replica beside its workers.
int threads_of(const Recipe& recipe, const train::RankInfo& rank);
/// Returns the recipe with model.ops=auto resolved for a run of `world` ranks.
Recipe with_ops(Recipe recipe, int world = 1);
/// Begins to load LibTorch and the rank's device, if the recipe needs them, while other work goes
/// on. Wait for it before make_strategy(), which says what fails.
std::future<void> load_strategy_ahead(const Recipe& recipe, const train::RankInfo& rank);
/// Makes the strategy for samples of training, and for evaluation's if they have another size.
/// `recipe`'s model.ops must be resolved; `hooks` serve train.strategy=ddp.
/// Throws UsageError for an unknown device name, DeviceError for a missing device.
std::unique_ptr<train::Strategy> make_strategy(const Recipe& recipe, const Reader& reader,
                                               const SampleSpec& sample,
                                               std::optional<Size> eval_size = {},
                                               const train::RankInfo& rank = {},
                                               train::RankHooks hooks = {});

}  // namespace millrace::tools
