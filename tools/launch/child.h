// Runs this program again as a child process.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace millrace::tools {

struct ChildResult {
  int exit_code = 0;      ///< 128 + N after signal N
  double cpu_s = 0;       ///< user and system time, with that of its own children
  std::string last_line;  ///< the last line it wrote, for messages
};

/// millrace ARGUMENTS, its stdout and stderr in `log`. Passes SIGTERM on when this process is
/// interrupted; dies with it, also where it is killed. Call it from the main thread, whose end
/// counts as this process's. Throws RunError when the child cannot be started.
ChildResult run_child(const std::vector<std::string>& arguments, const std::filesystem::path& log);

}  // namespace millrace::tools
