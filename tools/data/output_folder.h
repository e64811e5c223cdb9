// Where a generated set goes: a folder of its own, never one that holds something else.
#pragma once

#include <string>
#include <vector>

namespace millrace::tools {

/// Makes the folder, or checks that the one that is there holds nothing but files of these
/// relative names (left from an earlier, perhaps interrupted run). Throws RunError naming what
/// else lies there, unless `force`.
void prepare_folder(const std::string& path, const std::vector<std::string>& names, bool force);

}  // namespace millrace::tools
