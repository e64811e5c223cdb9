// Runs this program as a child process.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace millrace::tools {

struct ChildResult {
  int exit_code = 0;      ///< 128 + N after signal N
  double cpu_s = 0;       ///< user and system time, including its own children
  std::string last_line;  ///< its last line of output, for messages
};

/// Runs millrace with `arguments`, with its stdout and stderr in `log`. Passes SIGTERM on if this
/// process is interrupted. The child dies with this process, even if that is killed. Call it from
/// the main thread, because the child dies when the calling thread ends. Calls `meanwhile` some 50
/// times per second. Throws RunError if the child cannot be started.
ChildResult run_child(const std::vector<std::string>& arguments, const std::filesystem::path& log,
                      const std::function<void()>& meanwhile = {});

}  // namespace millrace::tools
