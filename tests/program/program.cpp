// Starts, watches and ends the program under test.
#include "tests/program/program.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Returns a file without a name, for a child to write to.
int nameless() {
  std::string pattern = (fs::temp_directory_path() / "millrace-out-XXXXXX").string();
  const int fd = mkostemp(pattern.data(), O_CLOEXEC);
  if (fd < 0) throw std::runtime_error("no temporary file");
  unlink(pattern.c_str());
  return fd;
}

std::string contents(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = pread(fd, buffer, sizeof buffer, static_cast<off_t>(text.size()))) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  return text;
}

void pause() { sleep_ms(1); }

/// Returns all living Child objects, so that processes of one are not attributed to another.
std::set<pid_t>& living() {
  static std::set<pid_t> pids;
  return pids;
}

/// Returns descendants that belong to no living Child because they outlived the one that started
/// them. Reaps those that have ended.
std::vector<pid_t> strays() {
  std::vector<pid_t> left;
  std::ifstream in("/proc/thread-self/children");
  for (pid_t pid = 0; in >> pid;)
    if (!living().contains(pid) && waitpid(pid, nullptr, WNOHANG) == 0) left.push_back(pid);
  return left;
}

/// Makes a system call fail in this process and in the program that it becomes.
void forbid(std::uint32_t call, std::uint32_t error) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{sizeof program / sizeof program[0], program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    _exit(125);
}

/// Replaces a descriptor by the file, or else by `kept`.
void redirect(int descriptor, const std::string& file, int kept) {
  dup2(file.empty() ? kept : open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666), descriptor);
}

}  // namespace

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

Child::Child(const Arguments& arguments, RunOptions options)
    : options_(std::move(options)), command_("millrace"), out_(nameless()), err_(nameless()) {
  Arguments all{options_.program.empty() ? MILLRACE_PROGRAM : options_.program};
  for (const auto& argument : arguments) {
    all.push_back(argument);
    command_ += " " + argument;
  }
  std::vector<char*> argv;
  for (auto& argument : all) argv.push_back(argument.data());
  argv.push_back(nullptr);

  prctl(PR_SET_CHILD_SUBREAPER, 1);  // descendants that outlive the child become ours
  begin_ = Clock::now();
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) become(std::move(argv));
  setpgid(pid_, pid_);
  living().insert(pid_);
}

void Child::become(std::vector<char*> argv) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
  redirect(STDOUT_FILENO, options_.stdout_to, out_);
  redirect(STDERR_FILENO, options_.stderr_to, err_);
  if (options_.close_stdin) close(STDIN_FILENO);
  if (options_.close_stdout) close(STDOUT_FILENO);
  if (options_.close_stderr) close(STDERR_FILENO);
  if (options_.max_file_bytes > 0) {
    const rlimit limit{options_.max_file_bytes, options_.max_file_bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  if (options_.max_files > 0) {
    const rlimit limit{options_.max_files, options_.max_files};
    setrlimit(RLIMIT_NOFILE, &limit);
    prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE, 0, 0, 0);
  }
  // Fails, harmlessly, for every user but root, who alone needs it.
  if (options_.obey_permissions) prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0);
  if (!options_.cwd.empty() && chdir(options_.cwd.c_str()) != 0) _exit(126);
  for (const auto& [name, value] : options_.env) setenv(name.c_str(), value.c_str(), 1);
  if (options_.no_locks) forbid(SYS_flock, ENOLCK);
  if (options_.no_fallocate) forbid(SYS_fallocate, EOPNOTSUPP);
  execv(argv[0], argv.data());
  _exit(127);
}

Child::~Child() {
  if (!ended_ || leaves_processes()) kill_all();
  close(out_);
  close(err_);
}

void spare(pid_t child) { living().insert(child); }

bool Child::collect() {
  siginfo_t info{};
  if (ended_ || waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != pid_)
    return ended_;
  end_ = Clock::now();
  ended_ = true;
  double ran_ns = 0;
  double waited_ns = 0;
  std::ifstream("/proc/" + std::to_string(pid_) + "/schedstat") >> ran_ns >> waited_ns;
  cpu_wait_s_ = waited_ns * 1e-9;
  waitpid(pid_, &status_, 0);
  living().erase(pid_);
  return true;
}

bool Child::running() { return !collect(); }
void Child::send(int signal) {
  if (running()) kill(pid_, signal);
}
void Child::send_to_group(int signal) {
  if (running()) kill(-pid_, signal);
}

bool Child::leaves_processes() const { return !strays().empty(); }

void Child::kill_all() {
  kill(-pid_, SIGKILL);
  if (waitpid(pid_, &status_, 0) != pid_) status_ = SIGKILL;
  living().erase(pid_);
  for (const pid_t other : strays()) {
    kill(other, SIGKILL);
    waitpid(other, nullptr, 0);
  }
  end_ = Clock::now();
  ended_ = true;
}

bool Child::says(const std::string& text, double timeout_s) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s);
  for (;;) {
    const bool over = collect() || Clock::now() > deadline;
    if (contents(err_).find(text) != std::string::npos) return true;
    if (over) return false;
    pause();
  }
}

Result Child::wait() {
  const auto deadline = Clock::now() + std::chrono::duration<double>(options_.timeout_s);
  while (!collect()) {
    if (Clock::now() > deadline) {
      ADD_FAILURE() << "hangs: " << command_ << "\nkilled after " << options_.timeout_s
                    << " s; it had said\n"
                    << contents(err_);
      kill_all();
    }
    pause();
  }
  Result result;
  result.exit_code = WIFEXITED(status_) ? WEXITSTATUS(status_) : -1;
  result.signal = WIFSIGNALED(status_) ? WTERMSIG(status_) : 0;
  result.out = contents(out_);
  result.err = contents(err_);
  result.wall_s = std::chrono::duration<double>(end_ - begin_).count();
  result.cpu_wait_s = cpu_wait_s_;
  return result;
}

Result run(const Arguments& arguments, const RunOptions& options) {
  return Child(arguments, options).wait();
}

std::vector<std::string> listens_at(pid_t pid) {
  std::set<std::string> sockets;  // "socket:[INODE]"
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd", ignored))
    sockets.insert(fs::read_symlink(entry.path(), ignored).string());
  std::vector<std::string> addresses;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream in(table);
    std::string line;
    std::getline(in, line);  // skips the columns' names
    while (std::getline(in, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >>
          timeout >> inode;
      const bool listens = state == "0A";
      if (listens && sockets.count("socket:[" + inode + "]") > 0) addresses.push_back(local);
    }
  }
  return addresses;
}

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> pids;
  std::ifstream in("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) +
                   "/children");
  for (pid_t pid = 0; in >> pid;) pids.push_back(pid);
  return pids;
}

Arguments operator+(Arguments base, const Arguments& more) {
  base.insert(base.end(), more.begin(), more.end());
  return base;
}

}  // namespace millrace::program_test
