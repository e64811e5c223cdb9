#include "tests/program/program.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/program/datasets.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// A file without a name, for a child to write to.
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

void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

}  // namespace

Child::Child(const Arguments& arguments, RunOptions options)
    : options_(std::move(options)), command_("millrace"), out_(nameless()), err_(nameless()) {
  Arguments all{MILLRACE_PROGRAM};
  for (const auto& argument : arguments) {
    all.push_back(argument);
    command_ += " " + argument;
  }
  std::vector<char*> argv;
  for (auto& argument : all) argv.push_back(argument.data());
  argv.push_back(nullptr);

  prctl(PR_SET_CHILD_SUBREAPER, 1);  // what outlives the child becomes ours
  begin_ = Clock::now();
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ > 0) {
    setpgid(pid_, pid_);
    return;
  }
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (options_.close_stdin) {
    close(STDIN_FILENO);
  } else {
    dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
  }
  const int out = options_.stdout_to.empty()
                      ? out_
                      : open(options_.stdout_to.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  dup2(out, STDOUT_FILENO);
  dup2(err_, STDERR_FILENO);
  if (options_.most_file_bytes > 0) {
    const rlimit limit{options_.most_file_bytes, options_.most_file_bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  // Fails where there is no need for it: for all but root.
  if (options_.obey_permissions) prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0);
  if (!options_.cwd.empty() && chdir(options_.cwd.c_str()) != 0) _exit(126);
  for (const auto& [name, value] : options_.env) setenv(name.c_str(), value.c_str(), 1);
  execv(argv[0], argv.data());
  _exit(127);
}

Child::~Child() {
  if (!ended_ || leaves_processes()) kill_all();
  close(out_);
  close(err_);
}

bool Child::collect() {
  if (!ended_ && waitpid(pid_, &status_, WNOHANG) == pid_) {
    end_ = Clock::now();
    ended_ = true;
  }
  return ended_;
}

bool Child::running() { return !collect(); }
void Child::send(int signal) {
  if (running()) kill(pid_, signal);
}
void Child::send_to_group(int signal) {
  if (running()) kill(-pid_, signal);
}

bool Child::leaves_processes() const {
  pid_t ended = 0;
  while ((ended = waitpid(-1, nullptr, WNOHANG)) > 0) {
  }
  return ended == 0;  // else there is no child
}

void Child::kill_all() {
  kill(-pid_, SIGKILL);
  if (waitpid(pid_, &status_, 0) != pid_) status_ = SIGKILL;
  std::ifstream others("/proc/thread-self/children");
  for (pid_t other = 0; others >> other;) {
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
  return result;
}

Result run(const Arguments& arguments, const RunOptions& options) {
  return Child(arguments, options).wait();
}

Arguments operator+(Arguments base, const Arguments& more) {
  base.insert(base.end(), more.begin(), more.end());
  return base;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size())
    ++count;
  return count;
}

std::string read_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  EXPECT_TRUE(in.good()) << file << " cannot be read";
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void write_file(const fs::path& file, const std::string& bytes) {
  fs::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::binary);
  out << bytes;
  if (!out.flush()) throw std::runtime_error("cannot write " + file.string());
}

Json parse_json(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_discarded()) return json;
  ADD_FAILURE() << "not one JSON document:\n" << text;
  return nullptr;
}

std::vector<Json> parse_json_lines(const std::string& text) {
  std::vector<Json> all;
  for (const auto& line : lines_of(text)) all.push_back(parse_json(line));
  return all;
}

testing::AssertionResult succeeded(const Result& result) {
  if (result.exit_code == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "exit " << result.exit_code << ", signal " << result.signal << "\n"
         << result.err;
}

testing::AssertionResult refused(const Result& result, int code,
                                 const std::vector<std::string>& parts, bool alone) {
  const auto fails = [&](const std::string& why) {
    return testing::AssertionFailure() << why << "\nexit " << result.exit_code << ", signal "
                                       << result.signal << "\n--- stderr\n"
                                       << result.err << "--- stdout\n"
                                       << result.out;
  };
  if (result.exit_code != code) return fails("expected exit code " + std::to_string(code));
  if (!result.out.empty()) return fails("something stands on stdout");
  const auto lines = lines_of(result.err);
  if (count_of("\n" + result.err, "\nmillrace: ") != 1) return fails("expected one error line");
  if (alone && lines.size() > 2) return fails("expected one line and a hint, nothing else");
  if (lines.size() < 2) return fails("expected a hint");
  const std::string& line = lines[lines.size() - 2];
  if (!line.starts_with("millrace: ")) return fails("the error is not the line before the last");
  if (!lines.back().starts_with("  hint: ")) return fails("the last line is no hint");
  for (const auto& part : parts)
    if (line.find(part) == std::string::npos && lines.back().find(part) == std::string::npos)
      return fails("neither line nor hint says \"" + part + "\"");
  return testing::AssertionSuccess();
}

testing::AssertionResult no_temporaries(const fs::path& folder) {
  if (!fs::exists(folder)) return testing::AssertionSuccess();
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".tmp")
      return testing::AssertionFailure() << entry.path() << " was left";
  return testing::AssertionSuccess();
}

ProgramTest::ProgramTest() {
  std::string pattern = (fs::temp_directory_path() / "millrace-program-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  folder_ = pattern;
}

ProgramTest::~ProgramTest() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::string ProgramTest::data() {
  if (!fs::exists(in("data"))) write_idx(in("data"));
  return in("data").string();
}

Arguments ProgramTest::simulated(const std::string& name, const Arguments& more) {
  return Arguments{"train",
                   "mnist-lenet",
                   "data.path=" + data(),
                   "train.device=simulated",
                   "simulated.update_ms=1",
                   "loader.batch=20",
                   "train.epochs=1",
                   "--run",
                   in(name).string()} +
         more;
}

Arguments ProgramTest::training(const std::string& name, const Arguments& more) {
  return Arguments{"train",         "mnist-lenet-plain", "data.path=" + data(), "train.threads=1",
                   "train.lr=0.02", "loader.batch=20",   "eval.batch=25",       "train.epochs=1",
                   "--run",         in(name).string()} +
         more;
}

Arguments ProgramTest::bench(const Arguments& more) {
  return Arguments{"bench", "mnist-lenet", "data.path=" + data(), "loader.batch=32"} + more;
}

Json ProgramTest::summary(const std::string& name) const {
  return parse_json(read_file(in(name) / "summary.json"));
}

}  // namespace millrace::program_test
