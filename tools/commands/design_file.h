// The record of a sweep's arguments in its directory: design.json.
#pragma once

#include <filesystem>
#include <string>

#include "tools/commands/sweep_arguments.h"

namespace millrace::tools {

/// Returns the sweep to resume; empty if a new one is to begin. Completes `arguments`.
std::filesystem::path find_resumed(SweepArguments& arguments);
/// Returns the resolved model.ops of the sweep at `path`.
std::string ops_at(const std::filesystem::path& path);
/// Writes design.json.
void write_design(const std::filesystem::path& path, const SweepArguments& arguments,
                  const std::string& ops);

}  // namespace millrace::tools
