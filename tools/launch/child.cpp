// Forks, executes and waits for a child.
#include "tools/launch/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <fstream>

#include "millrace/error.h"
#include "tools/terminal/interrupt.h"

namespace millrace::tools {
namespace {

constexpr int kLost = 1;  ///< exit code of a child that could not start

/// Returns the line that says what went wrong, or else the last line.
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

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

/// Runs in the child. Allocates nothing, because other threads may have held the heap's lock during
/// fork().
[[noreturn]] void become(const std::vector<char*>& argv, const std::filesystem::path& log,
                         pid_t parent) {
  // Makes a process group of its own: a terminal's Ctrl-C then reaches the child once, through its
  // parent.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);       // killing the parent kills the child
  if (getppid() != parent) _exit(kLost);  // the parent died before that
  const int input = open("/dev/null", O_RDONLY);
  const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (input < 0 || output < 0) _exit(kLost);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  if (input > STDERR_FILENO) close(input);
  if (output > STDERR_FILENO) close(output);
  execv(argv[0], argv.data());
  constexpr char kWhat[] = "millrace: cannot start the program again\n";
  static_cast<void>(!write(STDERR_FILENO, kWhat, sizeof kWhat - 1));
  _exit(kLost);
}

}  // namespace

ChildResult run_child(const std::vector<std::string>& arguments, const std::filesystem::path& log,
                      const std::function<void()>& meanwhile) {
  std::error_code ignored;
  std::string program = std::filesystem::read_symlink("/proc/self/exe", ignored).string();
  std::vector<char*> argv{program.data()};
  std::vector<std::string> copies = arguments;
  for (auto& argument : copies) argv.push_back(argument.data());
  argv.push_back(nullptr);

  const pid_t self = getpid();
  const pid_t pid = fork_for_program();
  if (pid < 0) throw RunError(fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (pid == 0) become(argv, log, self);
  setpgid(pid, pid);

  int status = 0;
  rusage usage{};
  bool told = false;
  for (;;) {
    const pid_t done = wait4(pid, &status, WNOHANG, &usage);
    if (done == pid) break;
    if (done < 0 && errno != EINTR)
      throw RunError(fmt::format("waiting for a child: {}", std::strerror(errno)));
    if (interrupted() && !told) {
      kill(pid, SIGTERM);
      told = true;
    }
    if (meanwhile) meanwhile();
    const timespec wait{0, 20'000'000};
    nanosleep(&wait, nullptr);
  }
  ChildResult result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.cpu_s = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  result.last_line = telling_line(log);
  return result;
}

}  // namespace millrace::tools
