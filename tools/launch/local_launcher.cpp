// Merges the ranks' lines and errors.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
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
#include <string_view>

#include "base/descriptor.h"
#include "base/text.h"
#include "strategies/control/rank.h"
#include "strategies/control/socket.h"
#include "tools/launch/launch.h"
#include "tools/terminal/terminal.h"

namespace millrace::tools {
namespace {

constexpr std::size_t kLongestLine = 65536;
/// Delay from the first error to its print: other ranks that fail for the same reason have reported
/// it by then.
constexpr std::chrono::seconds kOthers{1};

/// "WHAT" of "millrace: WHAT\n  hint: ...".
std::string_view what_of(std::string_view text) {
  constexpr std::string_view kProgramName = "millrace: ";
  const std::string_view line = text.substr(0, text.find('\n'));
  return line.starts_with(kProgramName) ? line.substr(kProgramName.size()) : line;
}

/// Returns whether `text` only reports another rank's error: "rank 1 (host, pid 5) ended at step 9:
/// WHAT".
bool relays(const std::string& text, const std::string& other) {
  const std::string_view what = what_of(other);
  return text != other && !what.empty() && what_of(text).starts_with("rank ") &&
         what_of(text).ends_with(what);
}

}  // namespace

RankPipe::RankPipe(base::Descriptor pipe) : pipe_(std::move(pipe)) {
  fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);
}

std::string RankPipe::take() {
  std::string all;
  char buffer[4096];
  while (pipe_) {
    const ssize_t n = read(pipe_.get(), buffer, sizeof buffer);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (n <= 0) {
      pipe_.close();
    } else {
      all.append(buffer, static_cast<std::size_t>(n));
    }
  }
  return all;
}

RankLines::RankLines(base::Descriptor pipe, int rank)
    : pipe_(std::move(pipe)), prefix_(fmt::format("[rank {}] ", rank)) {}

void RankLines::pump() {
  for (const char c : pipe_.take()) {
    if (c != '\n') line_ += c;
    if (c == '\n' || line_.size() >= kLongestLine) print_line();
  }
  if (pipe_.fd() < 0) end_line();
}

void RankLines::end_line() {
  if (!line_.empty()) print_line();
}

void RankLines::print_line() {
  write_error(prefix_ + base::printable_lines(line_) + "\n");
  line_.clear();
}

std::vector<int> RankErrors::fds() const {
  std::vector<int> open;
  for (const RankPipe& pipe : pipes_)
    if (pipe.fd() >= 0) open.push_back(pipe.fd());
  return open;
}

void RankErrors::pump() {
  for (std::size_t rank = 0; rank < pipes_.size(); ++rank) {
    std::string& text = texts_[rank];
    text += pipes_[rank].take();
    if (text.starts_with(kWatched)) {
      watched_.insert(rank);
      text.erase(0, 1);
    }
    if (dropped_.contains(rank)) text.clear();
    if (pipes_[rank].fd() >= 0 || text.empty()) continue;
    if (waiting_.empty()) due_ = Clock::now() + kOthers;
    std::vector<std::size_t>& ranks = waiting_[text];
    if (ranks.empty()) order_.push_back(text);
    ranks.push_back(rank);
    text.clear();
  }
  if (!waiting_.empty() && Clock::now() >= due_) print();
}

void RankErrors::print() {
  for (const std::string& text : order_) {
    const auto origin = [&](const std::string& other) { return relays(text, other); };
    std::vector<std::size_t>& ranks = waiting_[text];
    if (std::any_of(order_.begin(), order_.end(), origin) ||
        std::any_of(printed_.begin(), printed_.end(), origin)) {
      relaying_.insert(ranks.begin(), ranks.end());
      continue;
    }
    if (printed_.count(text) != 0) continue;
    std::sort(ranks.begin(), ranks.end());
    const bool all = ranks.size() == pipes_.size();
    print_error_text(text, all ? ""
                               : fmt::format("[{} {}] ", ranks.size() == 1 ? "rank" : "ranks",
                                             fmt::join(ranks, ", ")));
  }
  printed_.insert(order_.begin(), order_.end());
  order_.clear();
  waiting_.clear();
}

// Starts ranks as child processes, passes signals on, and finds the first failure.
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Time from the first rank's failure to SIGTERM for the others, if they watch each other
/// themselves.
constexpr auto kTermDelay = 5s;
/// Time from the first rank's failure to SIGTERM for the others before they watch each other: some
/// may be about to fail for the same reason.
constexpr auto kEarlyTermDelay = 300ms;
/// Time from SIGTERM to SIGKILL.
constexpr auto kLastPatience = 5s;
/// Time from the first rank's end after an interrupt to SIGTERM for the others: a second signal, on
/// which they leave at once. They end together, unless one cannot.
constexpr auto kInterruptPatience = 10s;

struct Rank {
  pid_t pid = 0;
  RankLines err;
  std::optional<int> status;  ///< status of waitpid(), once it has ended
  bool signalled = false;     ///< by this process
};

/// Arguments for a rank's process.
struct Start {
  int rank = 0;
  int count = 1;
  int port = 0;  ///< port of the rendezvous
  std::uint64_t key = 0;
  base::Descriptor store = {};   ///< listens at the port; rank 0 serves it
  base::Descriptor err = {};     ///< receives stderr; none: the launcher's stderr
  base::Descriptor errors = {};  ///< receives the rank's final error
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
  static base::Descriptor pipe_to(base::Descriptor& in, int rank) {
    int ends[2] = {-1, -1};
    if (pipe2(ends, O_CLOEXEC) != 0) throw cannot_start(rank);
    in = base::Descriptor(ends[1]);
    return base::Descriptor(ends[0]);
  }

  static RunError cannot_start(int rank) {
    const bool files = errno == EMFILE || errno == ENFILE;
    return RunError(
        fmt::format("rank {} cannot be started: {}", rank, std::strerror(errno)),
        files ? "raise the limit on open files, for example: ulimit -n 1024" : "start fewer ranks");
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
    next_ = Clock::now();
    if (errors_.all_watched()) {
      next_ += kTermDelay;
    } else if (!WIFSIGNALED(*ranks_[static_cast<std::size_t>(first)].status)) {
      next_ += kEarlyTermDelay;
    }
    ending_ = true;
  }

  bool stopped_as_told(int status) const {
    if (!told_) return false;
    return WIFEXITED(status) ? WEXITSTATUS(status) == static_cast<int>(Exit::interrupted)
                             : WTERMSIG(status) == SIGTERM;
  }

  /// A stopped process cannot end by itself.
  void kill_stopped() {
    for (Rank& one : ranks_) {
      siginfo_t info{};
      constexpr int kLook = WSTOPPED | WNOHANG | WNOWAIT;
      if (!one.status && waitid(P_PID, static_cast<id_t>(one.pid), &info, kLook) == 0 &&
          info.si_pid == one.pid)
        send(one, SIGKILL);
    }
  }

  void hurry() {
    kill_stopped();
    if (Clock::now() < next_ || killed_) return;
    if (!told_) {
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        if (!ranks_[rank].status) errors_.drop(static_cast<int>(rank));
    }
    tell_all(hurried_ ? SIGKILL : SIGTERM);
    killed_ = hurried_;
    hurried_ = true;
    next_ = Clock::now() + kLastPatience;
  }

  void tell_all(int signal) {
    for (Rank& one : ranks_)
      if (!one.status) send(one, signal);
  }

  static void send(Rank& one, int signal) {
    one.signalled = true;
    kill(one.pid, signal);
  }

  /// The rank with the error may end after those it informed, because it completes its records or,
  /// killed, gives back its memory after its connections.
  void find_cause() {
    if (first_ < 0 || !errors_.relayed(first_)) return;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const int status = *ranks_[rank].status;
      const bool own = WIFEXITED(status)
                           ? failed(status) && !errors_.relayed(static_cast<int>(rank))
                           : !ranks_[rank].signalled;
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
