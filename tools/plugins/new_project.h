// millrace plugins new: writes a plugin's project, ready to be built and tested.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace millrace::tools {

/// What `--kind` takes.
const std::vector<std::string>& project_kinds();

/// Writes `parent`/NAME with CMakeLists.txt, NAME.cpp, NAME_test.cpp and README.md. Throws
/// UsageError for a name that no unit can have and for a folder that is there, RunError where it
/// cannot be written.
std::filesystem::path write_project(const std::string& name, const std::string& kind,
                                    const std::filesystem::path& parent);

}  // namespace millrace::tools
