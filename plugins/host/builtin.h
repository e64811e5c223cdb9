// Registration of built-in units, by the same tables that plugins export (equal-plugins contract).
#pragma once

#include "millrace/millrace.h"

namespace millrace::plugins {

/// Registers a table before main() begins. Define one as a constant beside the table, so that rooms
/// above this one need not be named here.
struct BuiltIn {
  explicit BuiltIn(const millrace_plugin_table& table);
};

}  // namespace millrace::plugins
