// Starts child processes and ends them.

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/record_file.h"
#include "millrace/error.h"
#include "tools/launch/launch.h"
#include "tools/terminal/terminal.h"

namespace millrace::tools {

// Forks, executes and waits for a child.

namespace {

constexpr int kLost = 1;  ///< exit code of a child that could not start

/// Returns the line that says what went wrong, or else the last line.
std::string telling_line(const std::filesystem::path& log) {
  std::ifstream in = base::open_record(log);
  std::string line, last, telling;
  while (base::read_line(in, line, log)) {
    if (line.empty()) continue;
    last = line;
    if (line.starts_with("millrace: ")) telling = line.substr(10);
  }
  return telling.empty() ? last : telling;
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

/// Creates a file for a child's output, in the place of whatever has its name: the folder may be a
/// stranger's, and opening a link or a FIFO in it would write elsewhere or block. Allocates
/// nothing.
int create_output(const char* file) {
  unlink(file);
  return open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
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
  const int output = create_output(log.c_str());
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

// A supervisor process stands between this program and the command. It outlives a killed parent
// long enough to kill all processes of the command, which PR_SET_PDEATHSIG alone does not do for
// those that a shell or a training script starts.

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kCannotStart = 127;
constexpr std::chrono::seconds kGrace{5};  ///< from a request to end to SIGKILL

/// Message of the supervisor, sent when the command has ended.
struct Message {
  int status = SIGKILL;  ///< unless it ends by itself
  int start_error = 0;
  double wall_s = 0;
  double cpu_s = 0;
};

/// Input of the supervisor, prepared before fork(): it allocates nothing, because other threads
/// may have held the heap's lock.
struct Prepared {
  char* const* argv;
  const char* folder;
  const char* out;
  const char* err;
};

double monotonic_s() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double cpu_seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

/// Sends SIGKILL to this process's children. Returns false if it has none.
bool kill_children() {
  // The list is read again in each round: what a killed process leaves becomes a child of this one.
  std::array<char, 4096> text{};
  const int file = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
  const ssize_t size = file < 0 ? 0 : read(file, text.data(), text.size());
  if (file >= 0) close(file);
  pid_t pid = 0;
  for (ssize_t i = 0; i < size; ++i) {
    const char c = text[static_cast<std::size_t>(i)];
    if (c >= '0' && c <= '9') {
      pid = 10 * pid + (c - '0');
    } else {
      if (pid > 0) kill(pid, SIGKILL);
      pid = 0;
    }
  }
  pid_t reaped = 0;
  while ((reaped = waitpid(-1, nullptr, WNOHANG)) > 0) {
  }
  return reaped == 0;
}

void kill_all_children() {
  for (int round = 0; round < 5000 && kill_children(); ++round) {
    const timespec wait{0, 1'000'000};
    nanosleep(&wait, nullptr);
  }
}

/// Reaps children that have ended, but not `leader`. Returns whether that one has ended: until it
/// is reaped, no other process can get its number, and so its group can be killed.
bool leader_ended(pid_t leader) {
  for (;;) {
    siginfo_t ended{};
    if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0)
      return false;
    if (ended.si_pid == leader) return true;
    waitpid(ended.si_pid, nullptr, WNOHANG);
  }
}

/// Runs in the command's process.
[[noreturn]] void become_command(const Prepared& what, int failed, const sigset_t& signals) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &signals, nullptr);
  const int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int output = create_output(what.out);
  const int errors = create_output(what.err);
  if (input >= 0 && output >= 0 && errors >= 0 && chdir(what.folder) == 0) {
    dup2(input, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
    execvp(what.argv[0], what.argv);
  }
  const int error = errno;
  static_cast<void>(!write(failed, &error, sizeof error));
  _exit(kCannotStart);
}

/// Runs in the supervisor until the command has ended. `orders` carries numbers of signals for the
/// command; its end means that all is to be killed.
[[noreturn]] void supervise(const Prepared& what, int orders, int report) {
  setpgid(0, 0);  // a terminal's Ctrl-C comes through `orders`
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t child, before;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child, &before);
  const int ends = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
  std::array<int, 2> failed{-1, -1};
  Message message;
  const double begun = monotonic_s();
  const pid_t pid = ends < 0 || pipe2(failed.data(), O_CLOEXEC) != 0 ? -1 : fork();
  if (pid == 0) become_command(what, failed[1], before);
  if (pid < 0) {
    message.start_error = errno;
    static_cast<void>(!write(report, &message, sizeof message));
    _exit(1);
  }
  setpgid(pid, pid);
  close(failed[1]);
  if (read(failed[0], &message.start_error, sizeof message.start_error) <= 0)
    message.start_error = 0;  // closed by execution
  for (bool ended = false; !ended;) {
    std::array<pollfd, 2> events{{{orders, POLLIN, 0}, {ends, POLLIN, 0}}};
    if (poll(events.data(), events.size(), -1) < 0) continue;
    if (events[0].revents != 0) {
      char order = 0;
      if (read(orders, &order, 1) == 1)
        kill(-pid, order);
      else
        break;
    }
    signalfd_siginfo info{};
    while (read(ends, &info, sizeof info) > 0) {
    }
    ended = leader_ended(pid);
  }
  message.wall_s = monotonic_s() - begun;
  kill(-pid, SIGKILL);
  int status = 0;
  if (waitpid(pid, &status, WNOHANG) == pid) message.status = status;
  kill_all_children();
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  message.cpu_s = cpu_seconds(usage.ru_utime) + cpu_seconds(usage.ru_stime);
  static_cast<void>(!write(report, &message, sizeof message));
  _exit(0);
}

/// A pipe whose ends close with it.
struct Pipe {
  std::array<int, 2> ends{-1, -1};
  Pipe() {
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
      throw RunError(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_end(std::size_t end) {
    if (ends[end] >= 0) close(ends[end]);
    ends[end] = -1;
  }
};

/// Waits for the supervisor's message; none if it was told to kill the command, or was killed.
std::optional<Message> wait_for(Pipe& orders, int report, double timeout_s, bool& timed_out,
                                const std::function<void()>& meanwhile) {
  const auto begun = Clock::now();
  std::optional<Clock::time_point> deadline;
  const auto order = [&](char signal) {
    static_cast<void>(!write(orders.ends[1], &signal, 1));
    deadline = Clock::now() + kGrace;
  };
  for (;;) {
    pollfd event{report, POLLIN, 0};
    if (poll(&event, 1, 20) > 0) {
      Message message;
      if (read(report, &message, sizeof message) == sizeof message) return message;
      return {};
    }
    if (meanwhile) meanwhile();
    const auto now = Clock::now();
    if (!deadline && interrupted()) {
      order(SIGINT);
    } else if (!deadline && timeout_s > 0 &&
               now - begun > std::chrono::duration<double>(timeout_s)) {
      timed_out = true;
      order(SIGTERM);
    } else if (deadline && now > *deadline) {
      orders.close_end(1);
    }
  }
}

}  // namespace

CommandEnd run_command(const CommandChild& command, const std::function<void()>& meanwhile) {
  std::vector<std::string> words = command.words;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string out = std::filesystem::absolute(command.out);
  const std::string err = std::filesystem::absolute(command.err);
  const Prepared prepared{argv.data(), command.folder.c_str(), out.c_str(), err.c_str()};
  Pipe orders, report;
  const pid_t pid = fork_for_program();
  if (pid < 0) throw RunError(fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (pid == 0) {
    close(orders.ends[1]);  // else its end would never be seen
    supervise(prepared, orders.ends[0], report.ends[1]);
  }
  report.close_end(1);
  CommandEnd end;
  const auto message =
      wait_for(orders, report.ends[0], command.timeout_s, end.timed_out, meanwhile);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!message) throw RunError("the process that supervises the command was killed");
  end.exit_code =
      WIFEXITED(message->status) ? WEXITSTATUS(message->status) : 128 + WTERMSIG(message->status);
  end.start_error = message->start_error;
  end.wall_s = message->wall_s;
  end.cpu_s = message->cpu_s;
  return end;
}

bool program_exists(const std::string& name, const std::filesystem::path& folder) {
  const auto is_program = [](const std::filesystem::path& path) {
    std::error_code error;
    return std::filesystem::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) return is_program(folder / name);
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path);
  for (std::string one; std::getline(folders, one, ':');)
    if (is_program(folder / one / name)) return true;
  return false;
}

}  // namespace millrace::tools
