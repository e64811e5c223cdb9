// Prepares the folder of a generated set, which must hold nothing else.
#pragma once

#include <string>
#include <vector>

namespace millrace::tools {

/// Makes the folder, or checks that an existing one holds only files of these relative names (from
/// an earlier, perhaps interrupted run). Unless `force`, throws RunError with anything else in it.
void prepare_folder(const std::string& path, const std::vector<std::string>& names, bool force);

}  // namespace millrace::tools
