// Plugins from shared objects: the table is read and checked before any function in it is called.
#pragma once

#include <string>

#include "plugins/millrace.h"

namespace millrace {

/// Throws DataError naming `file` and the first thing that is wrong with the table.
void check_plugin_table(const millrace_plugin_table& table, const std::string& file);

/// Loads a shared object for good and returns its checked table. Throws DataError.
const millrace_plugin_table& load_plugin(const std::string& file);

}  // namespace millrace
