// Prints a sweep's table and writes it as CSV.
#pragma once

#include <filesystem>
#include <string>

#include "study/sweep/sweep_table.h"

namespace millrace::tools {

/// Prints the table and its notes, at most as wide as the terminal, or `wide`. `sweep` is named as
/// the place of the columns that are left out.
void print_table(const study::SweepTable& table, const std::filesystem::path& sweep, bool wide);

/// Writes table.csv and runs.csv into the sweep's directory.
void write_tables(const study::SweepTable& table, const std::filesystem::path& sweep);

}  // namespace millrace::tools
