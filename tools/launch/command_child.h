// Runs a command of the user, and ends all of its processes with it.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace millrace::tools {

struct CommandChild {
  std::vector<std::string> words;  ///< program, looked up in PATH, and its arguments
  std::filesystem::path folder;    ///< where it runs
  std::filesystem::path out;       ///< file for its stdout
  std::filesystem::path err;       ///< file for its stderr
  double timeout_s = 0;            ///< 0: none
};

struct CommandEnd {
  int exit_code = 0;       ///< 128 + N after signal N
  int start_error = 0;     ///< errno if the program could not be executed
  bool timed_out = false;  ///< exit_code then says how it ended
  double wall_s = 0;       ///< from its start to its end
  double cpu_s = 0;        ///< user and system time of all its processes
};

/// Runs the command in a process group of its own, with /dev/null as stdin. Passes SIGINT on if
/// this process is interrupted, and sends SIGTERM after the timeout; five seconds later all of its
/// processes are killed. Processes that it leaves behind are killed when it ends, and all of them
/// when this process dies, even by SIGKILL. Calls `meanwhile` some 50 times per second. Throws
/// RunError if no process can be started.
CommandEnd run_command(const CommandChild& command, const std::function<void()>& meanwhile = {});

/// Returns whether a program of that name or path can be executed from `folder`.
bool program_exists(const std::string& name, const std::filesystem::path& folder);

}  // namespace millrace::tools
