// Loads the recipe that a command line asks for.
#pragma once

#include <string>
#include <vector>

#include "base/private_api.h"
#include "millrace/recipe.h"
#include "pipeline/setup/host.h"

namespace millrace::pipeline {

/// Whether loading a recipe may load plugins, which are native code.
enum class Plugins {
  asked,  ///< loads those that the user asked for (Host::load_plugins) and rejects others
  none,   ///< loads none: the recipe is only inspected
};

/// Parses "[RECIPE] [key=value ...]" and loads the recipe, after the plugins that plugins.path and
/// the environment name. Throws UsageError, also for an address in data.path that holds a secret.
MILLRACE_PRIVATE_API Recipe load_recipe(const std::vector<std::string>& arguments, const Host& host,
                                        Plugins plugins = Plugins::asked);

}  // namespace millrace::pipeline
