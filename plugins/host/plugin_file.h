// Loads plugins from shared objects. Reads and checks the table before it calls any function in it
// (plugin-safety contract).
#pragma once

#include <string>
#include <string_view>

#include "base/private_api.h"
#include "millrace/millrace.h"

namespace millrace::plugins {

/// Kind of a unit, in the order of printed lists.
enum class UnitKind { reader, decoder, geometric, pixel, filter, choice, batch };
MILLRACE_PRIVATE_API UnitKind kind_of(const millrace_unit& unit);
MILLRACE_PRIVATE_API std::string_view name_of(UnitKind kind);

/// Throws DataError with `file`, the unit and the first defect.
void check_plugin_table(const millrace_plugin_table& table, const std::string& file);

/// Throws DataError unless `file` is a shared object for this machine and as long as its headers
/// say: loading a truncated file would end the process. Runs no code of it.
MILLRACE_PRIVATE_API void check_plugin_file(const std::string& file);

/// Loads a shared object, which is never unloaded, and returns its checked table. Throws DataError.
const millrace_plugin_table& load_plugin(const std::string& file);

}  // namespace millrace::plugins
