#include "tools/local_launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "pipeline/printable.h"
#include "strategies/socket.h"
#include "tools/console.h"
#include "tools/interrupt.h"
#include "tools/output.h"

namespace millrace {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// From the first rank's failure to SIGTERM for the others, which watch each other themselves.
constexpr auto kPatience = 5s;
/// From SIGTERM to SIGKILL.
constexpr auto kLastPatience = 5s;
constexpr std::size_t kLongestLine = 65536;

/// Whole lines of a rank's stderr, with its number before each.
class Prefixed {
 public:
  Prefixed() = default;
  Prefixed(Fd pipe, int rank) : pipe_(std::move(pipe)), prefix_(fmt::format("[rank {}] ", rank)) {}

  int fd() const { return pipe_.get(); }
  /// Passes on what there is.
  void pump() {
    char buffer[4096];
    while (pipe_) {
      const ssize_t n = read(pipe_.get(), buffer, sizeof buffer);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (n <= 0) {
        pipe_.close();
        end_line();
        return;
      }
      for (const char c : std::string_view(buffer, static_cast<std::size_t>(n))) {
        if (c != '\n') line_ += c;
        if (c == '\n' || line_.size() >= kLongestLine) print_line();
      }
    }
  }
  /// What came without an end of line.
  void end_line() {
    if (!line_.empty()) print_line();
  }

 private:
  void print_line() {
    write_error(prefix_ + printable_lines(line_) + "\n");
    line_.clear();
  }

  Fd pipe_;
  std::string prefix_;
  std::string line_;
};

struct Rank {
  pid_t pid = 0;
  Prefixed err;
  std::optional<int> status;  ///< of waitpid(), once it has ended
};

[[noreturn]] void become_rank(int rank, int count, int port, std::vector<std::string> arguments,
                              const Fd& err, pid_t parent) {
  // A process group of its own: a terminal's Ctrl-C then reaches it once, by way of the launcher.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it has died before that
  const std::map<std::string, std::string> variables{
      {"RANK", std::to_string(rank)},       {"WORLD_SIZE", std::to_string(count)},
      {"LOCAL_RANK", std::to_string(rank)}, {"LOCAL_WORLD_SIZE", std::to_string(count)},
      {"MASTER_ADDR", "127.0.0.1"},         {"MASTER_PORT", std::to_string(port)}};
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  unsetenv("TORCHELASTIC_USE_AGENT_STORE");  // an outer launcher's
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  if (rank > 0) {
    dup2(null, STDOUT_FILENO);
    dup2(err.get(), STDERR_FILENO);
  }
  std::error_code ignored;
  std::string program = std::filesystem::read_symlink("/proc/self/exe", ignored).string();
  std::vector<char*> argv{program.data()};
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  print_error(RunError(fmt::format("{} cannot be started: {}", program, std::strerror(errno))));
  _exit(1);
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

bool failed(int status) { return !WIFEXITED(status) || WEXITSTATUS(status) != 0; }

class Launcher {
 public:
  Launcher(int count, const std::vector<std::string>& arguments)
      : ranks_(static_cast<std::size_t>(count)) {
    // Free now; it stays so unless another program asks for one in the next moments.
    const int port = port_of(listen_on("127.0.0.1"));
    for (int rank = 0; rank < count; ++rank) start(rank, port, arguments);
  }

  Exit run() {
    while (std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return !r.status; })) {
      wait();
      collect();
      if (interrupted() && !told_) {
        told_ = true;
        tell_all(SIGTERM);
      }
      if (first_ >= 0) hurry();
    }
    for (Rank& one : ranks_) {
      one.err.pump();
      one.err.end_line();
    }
    return verdict();
  }

 private:
  void start(int rank, int port, const std::vector<std::string>& arguments) {
    int ends[2] = {-1, -1};
    if (rank > 0 && pipe2(ends, O_CLOEXEC) != 0) throw cannot_start(rank);
    Fd out(ends[0]);
    const Fd in(ends[1]);
    if (out) fcntl(out.get(), F_SETFL, O_NONBLOCK);
    Rank& one = ranks_[static_cast<std::size_t>(rank)];
    const pid_t self = getpid();
    const pid_t pid = fork();
    if (pid < 0) throw cannot_start(rank);
    if (pid == 0) become_rank(rank, static_cast<int>(ranks_.size()), port, arguments, in, self);
    one.pid = pid;
    setpgid(pid, pid);
    if (out) one.err = Prefixed(std::move(out), rank);
  }

  static RunError cannot_start(int rank) {
    return RunError(fmt::format("rank {} cannot be started: {}", rank, std::strerror(errno)),
                    "start fewer ranks");
  }

  void wait() {
    std::vector<pollfd> fds;
    for (const Rank& one : ranks_)
      if (one.err.fd() >= 0) fds.push_back({one.err.fd(), POLLIN, 0});
    constexpr int kLookMs = 50;  // at children and signals
    poll(fds.data(), fds.size(), kLookMs);
    for (Rank& one : ranks_) one.err.pump();
  }

  /// Of those that have failed since the last look, a killed one is likelier to be the cause.
  void collect() {
    int first = -1;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      Rank& one = ranks_[rank];
      int status = 0;
      if (one.status || waitpid(one.pid, &status, WNOHANG) != one.pid) continue;
      one.status = status;
      if (!failed(status) || stopped_as_told(status)) continue;
      if (first < 0 ||
          (WIFSIGNALED(status) && !WIFSIGNALED(*ranks_[static_cast<std::size_t>(first)].status)))
        first = static_cast<int>(rank);
    }
    if (first_ >= 0 || first < 0) return;
    first_ = first;
    next_ = Clock::now() + kPatience;
  }

  bool stopped_as_told(int status) const {
    if (!told_) return false;
    return WIFEXITED(status) ? WEXITSTATUS(status) == static_cast<int>(Exit::interrupted)
                             : WTERMSIG(status) == SIGTERM;
  }

  /// A process that was stopped cannot end by itself.
  void kill_stopped() {
    for (const Rank& one : ranks_) {
      siginfo_t info{};
      constexpr int kLook = WSTOPPED | WNOHANG | WNOWAIT;
      if (!one.status && waitid(P_PID, static_cast<id_t>(one.pid), &info, kLook) == 0 &&
          info.si_pid == one.pid)
        kill(one.pid, SIGKILL);
    }
  }

  void hurry() {
    kill_stopped();
    if (Clock::now() < next_ || killed_) return;
    tell_all(hurried_ ? SIGKILL : SIGTERM);
    killed_ = hurried_;
    hurried_ = true;
    next_ = Clock::now() + kLastPatience;
  }

  void tell_all(int signal) {
    for (const Rank& one : ranks_)
      if (!one.status) kill(one.pid, signal);
  }

  Exit verdict() const {
    if (first_ >= 0) {
      const Rank& one = ranks_[static_cast<std::size_t>(first_)];
      if (WIFSIGNALED(*one.status))
        throw RunError(fmt::format("rank {} (pid {}) was killed by {}", first_, one.pid,
                                   signal_name(WTERMSIG(*one.status))),
                       WTERMSIG(*one.status) == SIGKILL
                           ? "if nobody did, it was out of memory: the kernel's log says so"
                           : "its last lines above may say more");
      const int code = WEXITSTATUS(*one.status);
      say(fmt::format("rank {} (pid {}) was the first to fail: exit code {}", first_, one.pid,
                      code));
      return static_cast<Exit>(code);
    }
    const bool done = std::none_of(ranks_.begin(), ranks_.end(),
                                   [](const Rank& one) { return failed(*one.status); });
    if (done) return Exit::done;
    // Rank 0 says so itself, unless the signal came before it could catch it.
    if (WIFSIGNALED(*ranks_[0].status))
      throw Error(Exit::interrupted, "interrupted before the ranks had begun");
    return Exit::interrupted;
  }

  std::vector<Rank> ranks_;
  bool told_ = false;     ///< of the interrupt
  bool hurried_ = false;  ///< SIGTERM was sent after a failure
  bool killed_ = false;
  int first_ = -1;  ///< the first rank that failed
  Clock::time_point next_;
};

}  // namespace

Exit launch_ranks(int count, const std::vector<std::string>& arguments) {
  return Launcher(count, arguments).run();
}

}  // namespace millrace
