// From a recipe to the parts of a pipeline.
#pragma once

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
  asked,  ///< those that the user asked for (tools/plugins/grants.h); others are refused
  none,   ///< none: the recipe is only looked at
};

/// Splits "[RECIPE] [key=value ...]" and loads it, after the plugins that plugins.path and
/// MILLRACE_PLUGIN_PATH name.
Recipe load_recipe(const std::vector<std::string>& arguments, Plugins plugins = Plugins::asked);

/// A record's `plugins`: id, version and file (null: built in) of all whose units may have been
/// used.
nlohmann::ordered_json plugins_json();

/// Opens the data set's `split` as [data] says. Labels must lie below `classes`, or, where that is
/// 0, below model.classes.
std::shared_ptr<const Reader> open_data(const Recipe& recipe, const std::string& split,
                                        std::size_t classes = 0);

/// Compiles a chain for what `reader` delivers and what [output] asks for.
std::shared_ptr<const augment::Plan> make_plan(const Recipe& recipe,
                                               const std::vector<OpSpec>& chain,
                                               const Reader& reader);

/// The disk of data.storage.*, or null where none is emulated. All loaders of a run share one.
std::shared_ptr<pipeline::StorageModel> emulated_storage(const Recipe& recipe);

/// loader.workers=auto: the run decides (tools/training/auto_workers.h).
bool has_auto_workers(const Recipe& recipe);
/// loader.workers, or what a run begins with where that is to be found out: half of the cores.
int first_workers(const Recipe& recipe);

/// Samples that all of `world` ranks take together.
std::int64_t global_batch(const Recipe& recipe, int world);
/// [loader] and [data], seed included, for one of `world` ranks; io_threads is the number that will
/// run, batch what all ranks take together.
LoaderOptions loader_options(const Recipe& recipe, std::shared_ptr<pipeline::StorageModel> storage,
                             int rank = 0, int world = 1);

/// Throws UsageError for a loader.mode that would leave other keys of the recipe without effect.
void check_mode(const Recipe& recipe);

/// How evaluation reads: in order, unaugmented, nothing dropped; ranks share its batches alike.
LoaderOptions eval_loader_options(const Recipe& recipe, const Reader& reader,
                                  std::shared_ptr<pipeline::StorageModel> storage, int rank = 0,
                                  int world = 1);

}  // namespace millrace::tools
