// Units that are part of the library, by the same tables that plugins export.
#pragma once

#include "millrace/millrace.h"

namespace millrace::plugins {

/// Registers a table before main() begins: a constant beside the table does it, so that rooms above
/// this one need not be named here.
struct BuiltIn {
  explicit BuiltIn(const millrace_plugin_table& table);
};

}  // namespace millrace::plugins
