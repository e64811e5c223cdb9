// Plugins from shared objects: the table is read and checked before any function in it is called
// (plugin-safety contract).
#pragma once

#include <string>
#include <string_view>

#include "millrace/millrace.h"

namespace millrace::plugins {

/// What a unit does; in the order of the lists that are printed.
enum class UnitKind { reader, decoder, geometric, pixel, filter, choice, batch };
UnitKind kind_of(const millrace_unit& unit);
std::string_view name_of(UnitKind kind);

/// Throws DataError naming `file`, the unit and the first thing that is wrong.
void check_plugin_table(const millrace_plugin_table& table, const std::string& file);

/// Throws DataError unless `file` is a shared object for this machine, as long as its header says.
/// A file that is cut short would end the process while it is loaded. Runs nothing of it.
void check_plugin_file(const std::string& file);

/// Loads a shared object for good and returns its checked table. Throws DataError.
const millrace_plugin_table& load_plugin(const std::string& file);

}  // namespace millrace::plugins
