// Stalls of a process whose interpreter's lock is held.
#include "measure/data_loader/lock_watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "measure/data_loader/clock.h"

namespace millrace::measure {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kLookNs = 5'000'000;

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class LockWatchTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(pipe2(lines_, O_NONBLOCK | O_CLOEXEC), 0);
    std::filesystem::remove(file_);
  }
  void TearDown() override {
    for (const int one : lines_) close(one);
    std::filesystem::remove(file_);
  }
  void beat(std::int64_t limit_ns = 10'000'000) {
    watch_.beat({{waiting_, limit_ns, "a.py:1", "this process", "{\"loader\": \"a.py:1\""}},
                {file_, lines_[1], 100});
  }
  bool reported(std::chrono::milliseconds within) {
    const auto until = std::chrono::steady_clock::now() + within;
    while (watch_.reports() == 0 && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(1ms);
    return watch_.reports() > 0;
  }
  std::string lines() {
    char text[5000];
    const ssize_t size = read(lines_[0], text, sizeof(text));
    return size < 0 ? "" : std::string(text, static_cast<std::size_t>(size));
  }

  const std::shared_ptr<Waiting> waiting_ = std::make_shared<Waiting>();
  const std::string file_ = testing::TempDir() + "lock_watch_" + std::to_string(getpid());
  int lines_[2]{};
  LockWatch watch_;
};

TEST_F(LockWatchTest, ReportsAWaitWithoutBeats) {
  waiting_->begin(wall_ns(), 7);
  watch_.begin(kLookNs);
  beat();
  ASSERT_TRUE(reported(20s));
  watch_.end();
  const std::string record = text_of(file_);
  EXPECT_TRUE(record.starts_with("{\"loader\": \"a.py:1\", \"step\": 7, \"waited_s\": ")) << record;
  EXPECT_TRUE(record.ends_with("}\n")) << record;
  const std::string line = lines();
  EXPECT_TRUE(line.starts_with("a.py:1: no batch for ")) << line;
  EXPECT_TRUE(line.ends_with(" s after step 7: this process\n")) << line;
}

TEST_F(LockWatchTest, IsSilentWhilePythonRunsOrNobodyWaitsForLong) {
  watch_.begin(kLookNs);
  beat();
  EXPECT_FALSE(reported(100ms)) << "nobody waits";
  waiting_->begin(wall_ns(), 7);
  beat(20'000'000'000);
  EXPECT_FALSE(reported(100ms)) << "not for long";
  beat();
  waiting_->begin(wall_ns(), 8);
  waiting_->end();
  EXPECT_FALSE(reported(100ms)) << "the wait has ended";
}

TEST_F(LockWatchTest, ReportsAgainOnlyAfterTwiceTheTime) {
  waiting_->begin(wall_ns() - 20'000'000, 7);
  watch_.begin(kLookNs);
  beat();
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (watch_.reports() < 2 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(1ms);
  watch_.end();
  std::istringstream records(text_of(file_));
  std::vector<double> waited;
  for (std::string line; std::getline(records, line);)
    waited.push_back(std::stod(line.substr(line.rfind(' '))));
  ASSERT_GE(waited.size(), 2u);
  EXPECT_GE(waited[1], 1.9 * waited[0]);
}

TEST_F(LockWatchTest, ReportsNoMoreThanItsLimitAndNoLineWithoutAFile) {
  waiting_->begin(wall_ns() - 1'000'000'000, 7);
  watch_.begin(kLookNs);
  watch_.beat({{waiting_, 10'000'000, "a.py:1", "", "{\"a\": 1"}}, {file_, -1, 1});
  ASSERT_TRUE(reported(20s));
  waiting_->begin(wall_ns() - 60'000'000'000, 8);  // another stall
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(watch_.reports(), 1);
  watch_.end();
  EXPECT_EQ(lines(), "");
}

TEST_F(LockWatchTest, AFullPipeAndAMissingFolderHoldUpNobody) {
  const std::string filler(65536, 'x');
  while (write(lines_[1], filler.data(), filler.size()) > 0) {
  }
  ASSERT_EQ(fcntl(lines_[1], F_SETFL, 0), 0);  // a write would block
  waiting_->begin(wall_ns(), 7);
  watch_.begin(kLookNs);
  watch_.beat({{waiting_, 1, "a.py:1", "", "{"}}, {"/nowhere/stalls.jsonl", lines_[1], 100});
  ASSERT_TRUE(reported(20s));
  const auto begin = std::chrono::steady_clock::now();
  watch_.end();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
}

TEST_F(LockWatchTest, TakesNoSignalsOfTheScript) {
  static std::thread::id handled;
  const auto before = std::signal(SIGUSR1, [](int) { handled = std::this_thread::get_id(); });
  watch_.begin(kLookNs);
  std::this_thread::sleep_for(10ms);
  ASSERT_EQ(kill(getpid(), SIGUSR1), 0);
  EXPECT_EQ(handled, std::this_thread::get_id());
  std::signal(SIGUSR1, before);
}

TEST_F(LockWatchTest, EndsBeforeAForkAndComesBack) {
  watch_.begin(kLookNs);
  watch_.end();
  const pid_t child = fork();
  if (child == 0) {
    watch_.begin(kLookNs);
    watch_.end();
    _exit(0);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  waiting_->begin(wall_ns(), 7);
  watch_.begin(kLookNs);
  beat();
  EXPECT_TRUE(reported(20s));
}

}  // namespace
}  // namespace millrace::measure
