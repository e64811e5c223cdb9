// millrace plugins new: writes a plugin's project that builds and passes its test (contract Plugin
// tools).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace millrace::tools {

/// Returns the values of `--kind`.
const std::vector<std::string>& project_kinds();

/// Writes `parent`/NAME with CMakeLists.txt, NAME.cpp, NAME_test.cpp and README.md. Throws
/// UsageError for an invalid unit name or an existing folder, RunError if it cannot be written.
std::filesystem::path write_project(const std::string& name, const std::string& kind,
                                    const std::filesystem::path& parent);

}  // namespace millrace::tools
