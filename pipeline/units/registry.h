// All units there are: built in, and from the plugins that were loaded. Filled when the program
// starts, before recipes are read; read by all threads afterwards.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/recipe.h"
#include "plugins/millrace.h"

namespace millrace {

struct PluginEntry {
  const millrace_plugin_table* table;
  std::string file;  ///< empty: built in
};

/// Built in ones first, then in the order of loading.
std::span<const PluginEntry> plugins();

/// Loads a shared object and adds its units. Throws DataError for a defective plugin, and for one
/// whose id or units are there already.
void add_plugin(const std::string& file);

/// An augmentation by its name; throws UsageError with the nearest one.
const millrace_unit& augmentation(std::string_view name);
/// Declarations of all augmentations, sorted by name; a later add_plugin() invalidates them.
std::span<const OpDeclaration> op_declarations();

/// What bytes are asked for in turn: decoders of loaded plugins, then built in ones.
std::span<const millrace_unit* const> decoders();

}  // namespace millrace
