#include "tools/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <fstream>

#include "pipeline/error.h"
#include "tools/interrupt.h"

extern char** environ;

namespace millrace {
namespace {

/// The line that says what went wrong, or the last one there is.
std::string telling_line(const std::filesystem::path& log) {
  std::ifstream in(log);
  std::string line, last, telling;
  while (std::getline(in, line)) {
    if (line.empty()) continue;
    last = line;
    if (line.starts_with("millrace: ")) telling = line.substr(10);
  }
  return telling.empty() ? last : telling;
}

}  // namespace

ChildResult run_child(const std::vector<std::string>& arguments, const std::filesystem::path& log) {
  std::error_code ignored;
  std::string program = std::filesystem::read_symlink("/proc/self/exe", ignored).string();
  std::vector<char*> argv{program.data()};
  std::vector<std::string> copies = arguments;
  for (auto& argument : copies) argv.push_back(argument.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0666);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  // A process group of its own: a terminal's Ctrl-C then reaches it once, by way of this process.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, program.c_str(), &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    throw RunError(fmt::format("{} cannot be started: {}", program, std::strerror(error)));

  int status = 0;
  bool told = false;
  for (;;) {
    const pid_t done = waitpid(pid, &status, WNOHANG);
    if (done == pid) break;
    if (done < 0 && errno != EINTR)
      throw RunError(fmt::format("waiting for a child: {}", std::strerror(errno)));
    if (interrupted() && !told) {
      kill(pid, SIGTERM);
      told = true;
    }
    const timespec wait{0, 20'000'000};
    nanosleep(&wait, nullptr);
  }
  ChildResult result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.last_line = telling_line(log);
  return result;
}

}  // namespace millrace
