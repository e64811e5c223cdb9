// Builds the parts of a pipeline from a recipe.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "augment/plan/plan.h"
#include "millrace/loader.h"
#include "millrace/recipe.h"

namespace millrace::tools {

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
/// 0, less than model.classes.
std::shared_ptr<const Reader> open_data(const Recipe& recipe, const std::string& split,
                                        std::size_t classes = 0);

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

}  // namespace millrace::tools
