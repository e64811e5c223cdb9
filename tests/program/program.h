// Runs the program as a user would, and keeps its results.
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
  std::map<std::string, std::string> env;  ///< added to the test's own environment
  std::filesystem::path cwd;               ///< empty: the test's own folder
  std::string program;                     ///< another copy of it; empty: the build's
  double timeout_s = 150;                  ///< afterwards the child is killed and the test fails
  bool close_stdin = false;                ///< otherwise /dev/null
  bool close_stdout = false;               ///< otherwise stdout_to
  bool close_stderr = false;               ///< otherwise stderr_to
  std::uint64_t max_file_bytes = 0;        ///< RLIMIT_FSIZE; 0: none
  std::uint64_t max_files = 0;             ///< RLIMIT_NOFILE, as soft and hard limit; 0: none
  bool obey_permissions = false;           ///< even for root
  std::string stdout_to;                   ///< file for stdout; empty: kept in Result::out
  std::string stderr_to;                   ///< file for stderr; empty: kept in Result::err
  bool no_locks = false;                   ///< flock(2) fails with ENOLCK, as on some file systems
  bool no_fallocate = false;               ///< fallocate(2) fails with EOPNOTSUPP, as on others
};

struct Result {
  int exit_code = -1;  ///< -1: ended by `signal`
  int signal = 0;
  std::string out, err;
  double wall_s = 0;      ///< from just before the start to just after the end
  double cpu_wait_s = 0;  ///< of that, its main thread waited for a core; 0 if unknown
};

/// A running child in a process group of its own. The destructor kills it with all its processes.
class Child {
 public:
  explicit Child(const Arguments& arguments, RunOptions options = {});
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Waits until stderr contains `text`. Returns false after `timeout_s`, or if the child ends
  /// first.
  bool says(const std::string& text, double timeout_s = 60);
  void send(int signal);
  /// Signals the whole group, like a terminal's Ctrl-C.
  void send_to_group(int signal);
  bool running();
  pid_t pid() const { return pid_; }
  /// Waits for the end. Fails the test if that takes longer than RunOptions::timeout_s.
  Result wait();
  /// Returns whether processes remain of a Child that has ended. Call it after wait().
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

/// Names a process that the test itself has started, so that no Child takes it for a descendant of
/// its own.
void spare(pid_t child);

/// Returns the addresses at which a process listens for TCP connections, in /proc's notation:
/// "0100007F:1F90".
std::vector<std::string> listens_at(pid_t pid);

/// Returns the ids of a process's children, in the order of their start.
std::vector<pid_t> children_of(pid_t parent);

/// Concatenates `base` and `more`.
Arguments operator+(Arguments base, const Arguments& more);

void sleep_ms(int ms);
std::vector<std::string> lines_of(const std::string& text);
std::size_t count_of(const std::string& text, const std::string& part);
std::string read_file(const std::filesystem::path& file);
void write_file(const std::filesystem::path& file, const std::string& bytes);
/// Parses JSON. Fails the test and returns null for anything else.
Json parse_json(const std::string& text);
/// Returns docs/reference/summary.schema.json.
const Json& summary_schema();
/// Returns how `value`, which lies at `path`, breaks the schema; empty if it does not. Knows what
/// summary_schema() uses of JSON Schema, and takes each key that it does not name for a break.
std::string schema_problem(const Json& value, const Json& schema, const std::string& path = "");
std::vector<Json> parse_json_lines(const std::string& text);

/// Expects exit code 0; otherwise the test shows the program's messages.
testing::AssertionResult succeeded(const Result& result);
/// Expects exit code `code`, nothing on stdout, and one line on stderr that contains all of
/// `parts`, followed by a hint. `alone`: stderr contains nothing else.
testing::AssertionResult refused(const Result& result, int code,
                                 const std::vector<std::string>& parts, bool alone = true);
/// Expects no file named *.tmp or *.tmp-PID anywhere below `folder`.
testing::AssertionResult no_temporaries(const std::filesystem::path& folder);

/// A test with a folder of its own and a small learnable data set in it.
class ProgramTest : public testing::Test {
 protected:
  ProgramTest();
  ~ProgramTest() override;

  std::filesystem::path in(const std::string& name) const { return folder_ / name; }
  /// Returns the set: 200 training and 60 test images of 28x28, written on first use.
  std::string data();
  /// Returns train mnist-lenet on a simulated device of 1 ms per step, into in(run).
  Arguments simulated(const std::string& run, const Arguments& more = {});
  /// Returns train mnist-lenet-plain with one thread for LibTorch, into in(run).
  Arguments training(const std::string& run, const Arguments& more = {});
  Arguments bench(const Arguments& more = {});
  /// Returns a run's summary. Expects that it follows its schema, if the run is a training.
  Json summary(const std::string& run) const;

 private:
  std::filesystem::path folder_;
};

/// First statement of a test that trains a model: skips it without LibTorch.
#define MILLRACE_NEEDS_TORCH() \
  if (MILLRACE_HAS_TORCH == 0) \
  GTEST_SKIP() << "this build has no LibTorch (MILLRACE_TORCH=OFF): no model can be trained"

}  // namespace millrace::program_test
