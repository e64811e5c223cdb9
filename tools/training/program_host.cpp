// Answers for the program what setting up a pipeline asks of the process around it.
#include <filesystem>

#include "pipeline/setup/data_setup.h"
#include "plugins/host/registry.h"
#include "strategies/trainer/train_choices.h"
#include "tools/plugins/grants.h"
#include "tools/terminal/terminal.h"
#include "tools/training/setup.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

const pipeline::Host& program_host() {
  static const pipeline::Host host{say, load_asked_plugins, load_plugins_of_environment,
                                   recipe_folders()};
  return host;
}

}  // namespace

std::vector<fs::path> recipe_folders() {
  std::error_code ignored;
  const fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  return {folder / "../share/millrace/recipes", folder / "recipes"};
}

Recipe load_recipe(const std::vector<std::string>& arguments, pipeline::Plugins plugins) {
  return pipeline::load_recipe(arguments, program_host(), plugins);
}

std::vector<study::PluginRecord> plugin_records() {
  std::vector<study::PluginRecord> all;
  for (const plugins::PluginEntry& plugin : plugins::plugins_in_use()) {
    all.push_back({plugin.table->id, plugin.table->version, {}});
    if (!plugin.file.empty()) all.back().file = plugin.file;
  }
  return all;
}

std::shared_ptr<const Reader> open_data(const Recipe& recipe, const std::string& split,
                                        std::size_t classes, StopAt at) {
  return pipeline::open_data(recipe, split, classes, program_host(), &interrupted(), at);
}

}  // namespace millrace::tools
