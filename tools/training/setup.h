// From the words of a command line to what runs: the recipe, the pipeline, this process's rank
// and the strategy.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "augment/plan/plan.h"
#include "millrace/loader.h"
#include "millrace/reader.h"
#include "millrace/recipe.h"
#include "millrace/transform.h"
#include "strategies/control/rank.h"
#include "strategies/trainer/strategy.h"

namespace millrace::tools {

// Splits "[RECIPE] [key=value ...]", and explains words that are neither.

struct RecipeWords {
  std::string recipe;  ///< empty: none was given
  std::vector<std::string> overrides;
};

/// Returns the recipe and the overrides. Throws UsageError that tells how to write what was
/// probably meant: spaces around '=', a key and its value as two words, unquoted braces.
RecipeWords recipe_words(const std::vector<std::string>& arguments);

/// Returns the override that an option of another program stands for: "--workers" and "4" give
/// "loader.workers=4". Empty if there is no such key. An answer with spaces is a sentence.
std::string override_for_option(std::string_view option, std::string_view value);

// Builds the parts of a pipeline from a recipe.

/// Whether loading a recipe may load plugins, which are native code.
enum class Plugins {
  asked,  ///< loads those that the user asked for (tools/plugins/grants.h) and rejects others
  none,   ///< loads none: the recipe is only inspected
};

/// Returns the folders of shipped recipes: under the installation that the program is part of, or
/// in the build folder.
std::vector<std::filesystem::path> recipe_folders();

/// Parses "[RECIPE] [key=value ...]" and loads the recipe, after the plugins that plugins.path and
/// MILLRACE_PLUGIN_PATH name.
Recipe load_recipe(const std::vector<std::string>& arguments, Plugins plugins = Plugins::asked);

/// Returns `plugins` for records: id, version and file (null: built in) of every plugin whose units
/// may have been used.
nlohmann::ordered_json plugins_json();

/// Opens the data set's `split` as [data] says. Labels must be less than `classes`, or if that is
/// 0, less than model.classes. `stop` ends what waits for a remote set once it is set, and must
/// outlive the reader; null: the program's own flag, where the recipe lets a run end anywhere.
std::shared_ptr<const Reader> open_data(const Recipe& recipe, const std::string& split,
                                        std::size_t classes = 0,
                                        const std::atomic<bool>* stop = nullptr);

/// Compiles a chain from the images of `reader` to the format of [output].
std::shared_ptr<const augment::Plan> make_plan(const Recipe& recipe,
                                               const std::vector<OpSpec>& chain,
                                               const Reader& reader);

/// Throws UsageError if an op of recipe.augment() works on whole batches and `world` ranks would
/// divide them.
void require_divisible(const Recipe& recipe, int world);

/// Returns the disk of data.storage.*, or null if none is emulated. All loaders of a run share one.
std::shared_ptr<pipeline::StorageModel> emulated_storage(const Recipe& recipe);

/// Returns whether loader.workers=auto (tools/training/auto_workers.h).
bool has_auto_workers(const Recipe& recipe);
/// Returns loader.workers; for auto, the initial number: half of the cores.
int first_workers(const Recipe& recipe);

/// Returns the samples per batch over all `world` ranks.
std::int64_t global_batch(const Recipe& recipe, int world);
/// Returns [loader] and [data], seed included, for one of `world` ranks. io_threads is the resolved
/// number, and batch the size over all ranks.
LoaderOptions loader_options(const Recipe& recipe, std::shared_ptr<pipeline::StorageModel> storage,
                             int rank = 0, int world = 1);

/// Throws UsageError if loader.mode would leave other keys of the recipe without effect.
void check_mode(const Recipe& recipe);

/// Returns the options for evaluation: in order, unaugmented, nothing dropped. Ranks share its
/// batches equally.
LoaderOptions eval_loader_options(const Recipe& recipe, const Reader& reader,
                                  std::shared_ptr<pipeline::StorageModel> storage, int rank = 0,
                                  int world = 1);

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

/// Returns the cores that this process may run on.
int cores();
bool is_simulated(const Recipe& recipe);
bool is_on_cpu(const Recipe& recipe);
/// Returns train.threads, or by default the cores of the host that are left to each rank and
/// replica beside its workers.
int threads_of(const Recipe& recipe, const train::RankInfo& rank);
/// Returns the recipe with model.ops=auto resolved for a run of `world` ranks.
Recipe with_ops(Recipe recipe, int world = 1);
/// Makes the strategy. `recipe`'s model.ops must be resolved; `hooks` serve train.strategy=ddp.
/// Throws UsageError for an unknown device name, DeviceError for a missing device.
std::unique_ptr<train::Strategy> make_strategy(const Recipe& recipe, const Reader& reader,
                                               const SampleSpec& sample,
                                               const train::RankInfo& rank = {},
                                               train::RankHooks hooks = {});

}  // namespace millrace::tools
