// Which reader a path is for, where nobody says.
#pragma once

#include <string>

namespace millrace::tools {

/// "idx", "cifar", "tar", "manifest", or "folder" for anything else.
std::string detect_reader(const std::string& path);

}  // namespace millrace::tools
