// Starts ranks as child processes, passes signals on, and finds the first failure.
#include "tools/launch/local_launcher.h"

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
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <random>

#include "strategies/control/rank.h"
#include "strategies/control/socket.h"
#include "tools/launch/rank_output.h"
#include "tools/terminal/console.h"
#include "tools/terminal/interrupt.h"

namespace millrace::tools {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Time from the first rank's failure to SIGTERM for the others, which watch each other themselves.
constexpr auto kPatience = 5s;
/// Time from SIGTERM to SIGKILL.
constexpr auto kLastPatience = 5s;
/// Time from the first rank's end after an interrupt to SIGTERM for the others: a second signal, on
/// which they leave at once. They end together, unless one cannot.
constexpr auto kInterruptPatience = 10s;

struct Rank {
  pid_t pid = 0;
  RankLines err;
  std::optional<int> status;  ///< status of waitpid(), once it has ended
};

/// Arguments for a rank's process.
struct Start {
  int rank = 0;
  int count = 1;
  int port = 0;  ///< port of the rendezvous
  std::uint64_t key = 0;
  train::Fd store = {};   ///< listens at the port; rank 0 serves it
  train::Fd err = {};     ///< receives stderr; none: the launcher's stderr
  train::Fd errors = {};  ///< receives the rank's final error
};

[[noreturn]] void become_rank(const Start& start, std::vector<std::string> arguments,
                              pid_t parent) {
  // Makes a process group of its own: a terminal's Ctrl-C then reaches it once, through the
  // launcher.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the launcher died before that
  const std::map<std::string, std::string> variables{
      {"RANK", std::to_string(start.rank)},
      {"WORLD_SIZE", std::to_string(start.count)},
      {"LOCAL_RANK", std::to_string(start.rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(start.count)},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", std::to_string(start.port)},
      {"GLOO_SOCKET_IFNAME", "lo"},  // no other host needs to reach a rank
      {train::kKeyVariable, fmt::format("{:016x}", start.key)},
      {kErrorVariable, std::to_string(start.errors.get())}};
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  unsetenv("TORCHELASTIC_USE_AGENT_STORE");  // from an outer launcher
  fcntl(start.errors.get(), F_SETFD, 0);
  if (start.rank == 0) {
    setenv(train::kStoreVariable, std::to_string(start.store.get()).c_str(), 1);
    fcntl(start.store.get(), F_SETFD, 0);
  } else {
    unsetenv(train::kStoreVariable);
  }
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  if (start.rank > 0) {
    dup2(null, STDOUT_FILENO);
    dup2(start.err.get(), STDERR_FILENO);
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
      : ranks_(static_cast<std::size_t>(count)), errors_(ranks_.size()) {
    std::random_device random;
    Start start{.count = count,
                .key = static_cast<std::uint64_t>(random()) << 32 | random(),
                .store = train::listen_on("127.0.0.1")};
    start.port = train::port_of(start.store);
    for (; start.rank < count; ++start.rank) begin(start, arguments);
  }

  Exit run() {
    while (std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return !r.status; })) {
      wait();
      collect();
      if (interrupted() && !told_) interrupt();
      if (ending_) hurry();
    }
    for (Rank& one : ranks_) {
      one.err.pump();
      one.err.end_line();
    }
    errors_.pump();
    errors_.print();
    find_cause();
    return verdict();
  }

 private:
  void begin(Start& start, const std::vector<std::string>& arguments) {
    Rank& one = ranks_[static_cast<std::size_t>(start.rank)];
    if (start.rank > 0) one.err = RankLines(pipe_to(start.err, start.rank), start.rank);
    errors_.watch(start.rank, pipe_to(start.errors, start.rank));
    const pid_t self = getpid();
    const pid_t pid = fork_for_program();
    if (pid < 0) throw cannot_start(start.rank);
    if (pid == 0) become_rank(start, arguments, self);
    one.pid = pid;
    setpgid(pid, pid);
    start.store.close();  // rank 0 owns it now
  }

  /// Makes a pipe. Returns its read end.
  static train::Fd pipe_to(train::Fd& in, int rank) {
    int ends[2] = {-1, -1};
    if (pipe2(ends, O_CLOEXEC) != 0) throw cannot_start(rank);
    in = train::Fd(ends[1]);
    return train::Fd(ends[0]);
  }

  static RunError cannot_start(int rank) {
    const bool files = errno == EMFILE || errno == ENFILE;
    return RunError(
        fmt::format("rank {} cannot be started: {}", rank, std::strerror(errno)),
        files ? "raise the limit of open files, as with ulimit -n 1024" : "start fewer ranks");
  }

  void wait() {
    std::vector<pollfd> fds;
    for (const Rank& one : ranks_)
      if (one.err.fd() >= 0) fds.push_back({one.err.fd(), POLLIN, 0});
    for (const int fd : errors_.fds()) fds.push_back({fd, POLLIN, 0});
    constexpr int kLookMs = 50;  // interval between looks at children and signals
    poll(fds.data(), fds.size(), kLookMs);
    for (Rank& one : ranks_) one.err.pump();
    errors_.pump();
  }

  /// Continues a stopped rank, so that it ends with the others.
  void interrupt() {
    told_ = true;
    tell_all(SIGTERM);
    tell_all(SIGCONT);
  }

  /// Prefers a killed rank among those that failed since the last look: it is the likelier cause.
  void collect() {
    int first = -1;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      Rank& one = ranks_[rank];
      int status = 0;
      if (one.status || waitpid(one.pid, &status, WNOHANG) != one.pid) continue;
      one.status = status;
      if (!failed(status)) continue;
      if (told_) {
        if (!ending_) next_ = Clock::now() + kInterruptPatience;
        ending_ = true;
      }
      if (stopped_as_told(status)) continue;
      if (first < 0 ||
          (WIFSIGNALED(status) && !WIFSIGNALED(*ranks_[static_cast<std::size_t>(first)].status)))
        first = static_cast<int>(rank);
    }
    if (first_ >= 0 || first < 0) return;
    first_ = first;
    next_ = Clock::now() + kPatience;
    ending_ = true;
  }

  bool stopped_as_told(int status) const {
    if (!told_) return false;
    return WIFEXITED(status) ? WEXITSTATUS(status) == static_cast<int>(Exit::interrupted)
                             : WTERMSIG(status) == SIGTERM;
  }

  /// A stopped process cannot end by itself.
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

  /// The rank with the error may end after those it informed, because it completes its records.
  void find_cause() {
    if (first_ < 0 || !errors_.relayed(first_)) return;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const int status = *ranks_[rank].status;
      const bool own =
          WIFEXITED(status) && failed(status) && !errors_.relayed(static_cast<int>(rank));
      if (!own) continue;
      first_ = static_cast<int>(rank);
      return;
    }
  }

  Exit verdict() const {
    if (first_ >= 0) {
      const Rank& one = ranks_[static_cast<std::size_t>(first_)];
      if (WIFSIGNALED(*one.status))
        throw RunError(fmt::format("rank {} (pid {}) was killed by {}", first_, one.pid,
                                   signal_name(WTERMSIG(*one.status))),
                       WTERMSIG(*one.status) == SIGKILL
                           ? "probably out of memory: see the kernel's log"
                           : "see its last lines above");
      const int code = WEXITSTATUS(*one.status);
      if (code != static_cast<int>(Exit::interrupted))
        say(fmt::format("rank {} (pid {}) was the first to fail: exit code {}", first_, one.pid,
                        code));
      return static_cast<Exit>(code);
    }
    const bool done = std::none_of(ranks_.begin(), ranks_.end(),
                                   [](const Rank& one) { return failed(*one.status); });
    if (done) return Exit::done;
    // Rank 0 reports it itself, unless the signal came before its handler was set.
    if (WIFSIGNALED(*ranks_[0].status))
      throw Error(Exit::interrupted, "interrupted before the ranks started");
    return Exit::interrupted;
  }

  std::vector<Rank> ranks_;
  RankErrors errors_;
  bool told_ = false;     ///< the interrupt was reported
  bool ending_ = false;   ///< a rank failed, or ended by the interrupt: the others must end too
  bool hurried_ = false;  ///< SIGTERM was sent after a failure
  bool killed_ = false;
  int first_ = -1;  ///< first rank that failed
  Clock::time_point next_;
};

}  // namespace

Exit launch_ranks(int count, const std::vector<std::string>& arguments) {
  return Launcher(count, arguments).run();
}

}  // namespace millrace::tools
