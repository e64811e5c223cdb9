// Tests threads that cannot be started, as at a container's limit: the result is an error, neither
// a hang nor a crash.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "augment/plan/plan.h"
#include "millrace/error.h"
#include "millrace/loader.h"
#include "tests/pipeline/numbered.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // sanitizers reserve address space of their own
#else
constexpr bool kSanitized = false;
#endif

namespace millrace::pipeline {
namespace {

/// Leaves no memory for another thread's stack.
void leave_little_memory() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t bytes = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + 4'000'000;
  const rlimit limit{bytes, bytes};
  setrlimit(RLIMIT_AS, &limit);
}

/// Makes a loader; exits with 0, or with the error's exit code and text.
[[noreturn]] void load(int workers, int io_threads) {
  alarm(20);  // a hang is a failure too
  const auto reader = std::make_shared<Numbered>(100);
  const auto plan = std::make_shared<augment::Plan>(
      std::vector<OpSpec>{}, Source{reader->info().size, 1},
      OutputOptions{DType::u8, Layout::chw, {0}, {1}}, Resample::once);
  LoaderOptions options;
  options.workers = workers;
  options.io_threads = io_threads;
  options.batch = 8;
  leave_little_memory();
  try {
    const Loader loader(reader, plan, options);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    _exit(static_cast<int>(error.exit()));
  }
  _exit(0);
}

TEST(NoThreadsDeathTest, AreAnErrorOfTheLoader) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs more memory than this test leaves";
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process without other tests' threads
  EXPECT_EXIT(load(1, 0), testing::ExitedWithCode(1), "1 worker cannot be started: ");
  EXPECT_EXIT(load(2, 3), testing::ExitedWithCode(1), "2 workers cannot be started: ");
}

}  // namespace
}  // namespace millrace::pipeline
