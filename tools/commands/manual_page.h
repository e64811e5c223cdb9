// The manual page, millrace.1, from the same declarations as --help.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace millrace::tools {

/// Returns the page in man(7)'s macros: every command with its options and its example.
std::string manual_page(const CLI::App& app);

}  // namespace millrace::tools
