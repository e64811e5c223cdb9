// Chooses the reader for a path when none is named.
#pragma once

#include <string>

namespace millrace::tools {

/// Returns "idx", "cifar", "tar", "manifest", or "folder" for anything else.
std::string detect_reader(const std::string& path);

}  // namespace millrace::tools
