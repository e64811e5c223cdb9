// Runs the program as a user would and keeps what came of it.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace millrace::program_test {

using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

struct RunOptions {
  std::map<std::string, std::string> env;  ///< added to the test's own
  std::filesystem::path cwd;               ///< empty: the test's own
  double timeout_s = 60;                   ///< then the child is killed and the test fails
  bool close_stdin = false;                ///< else /dev/null
  bool close_stdout = false;               ///< else stdout_to
  bool close_stderr = false;               ///< else stderr_to
  std::uint64_t max_file_bytes = 0;        ///< RLIMIT_FSIZE; 0: none
  std::uint64_t max_files = 0;             ///< RLIMIT_NOFILE, which it cannot raise; 0: none
  bool obey_permissions = false;           ///< root too
  std::string stdout_to;                   ///< a file that takes stdout; empty: kept in Result::out
  std::string stderr_to;                   ///< the same for stderr and Result::err
  bool no_locks = false;                   ///< flock(2) fails with ENOLCK, as on some file systems
};

struct Result {
  int exit_code = -1;  ///< -1: ended by `signal`
  int signal = 0;
  std::string out, err;
  double wall_s = 0;      ///< from before the start to after the end
  double cpu_wait_s = 0;  ///< of it, what its main thread waited for a core; 0 if unknown
};

/// A child that runs, in a process group of its own. At the latest the destructor kills it, with
/// all that it started.
class Child {
 public:
  explicit Child(const Arguments& arguments, RunOptions options = {});
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Waits until stderr holds `text`; false after `timeout_s`, or when the child has ended.
  bool says(const std::string& text, double timeout_s = 30);
  void send(int signal);
  /// To the whole group, as a terminal's Ctrl-C does.
  void send_to_group(int signal);
  bool running();
  pid_t pid() const { return pid_; }
  /// Waits for the end. Fails the test where that takes longer than RunOptions::timeout_s.
  Result wait();
  /// Whether a process is left that a Child started which has ended; call it after wait().
  bool leaves_processes() const;

 private:
  [[noreturn]] void become(std::vector<char*> argv);
  bool collect();
  void kill_all();

  RunOptions options_;
  std::string command_;
  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  bool ended_ = false;
  int status_ = 0;
  double cpu_wait_s_ = 0;
  std::chrono::steady_clock::time_point begin_, end_;
};

Result run(const Arguments& arguments, const RunOptions& options = {});

/// Addresses at which a process listens for TCP connections, as /proc writes them:
/// "0100007F:1F90".
std::vector<std::string> listens_at(pid_t pid);

/// The process ids of a process's children, in the order in which they were started.
std::vector<pid_t> children_of(pid_t parent);

/// Starts `base`, then `more`.
Arguments operator+(Arguments base, const Arguments& more);

void sleep_ms(int ms);
std::vector<std::string> lines_of(const std::string& text);
std::size_t count_of(const std::string& text, const std::string& part);
std::string read_file(const std::filesystem::path& file);
void write_file(const std::filesystem::path& file, const std::string& bytes);
/// Fails the test and gives null where it isn't JSON.
Json parse_json(const std::string& text);
std::vector<Json> parse_json_lines(const std::string& text);

/// Exit code 0; else the test shows what the program said.
testing::AssertionResult succeeded(const Result& result);
/// `code`, nothing on stdout, and one line on stderr that holds all of `parts`, with a hint below.
/// `alone`: nothing else stands on stderr.
testing::AssertionResult refused(const Result& result, int code,
                                 const std::vector<std::string>& parts, bool alone = true);
/// No file whose name ends in .tmp or .tmp-PID anywhere below `folder`.
testing::AssertionResult no_temporaries(const std::filesystem::path& folder);

/// A test with a folder of its own and a small learnable set in it.
class ProgramTest : public testing::Test {
 protected:
  ProgramTest();
  ~ProgramTest() override;

  std::filesystem::path in(const std::string& name) const { return folder_ / name; }
  /// 200 training and 60 test images of 28x28, written when first asked for.
  std::string data();
  /// train mnist-lenet on a simulated device of 1 ms a step, into in(run).
  Arguments simulated(const std::string& run, const Arguments& more = {});
  /// train mnist-lenet-plain for real, one thread for LibTorch, into in(run).
  Arguments training(const std::string& run, const Arguments& more = {});
  Arguments bench(const Arguments& more = {});
  Json summary(const std::string& run) const;

 private:
  std::filesystem::path folder_;
};

/// The first statement of a test that trains a model.
#define MILLRACE_NEEDS_TORCH() \
  if (MILLRACE_HAS_TORCH == 0) \
  GTEST_SKIP() << "this build has no LibTorch (MILLRACE_TORCH=OFF): no model can be trained"

}  // namespace millrace::program_test
