// Another program on the machine, for tests of what the program says about it.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

namespace millrace::program_test {

/// Threads that keep a quarter of the cores and one more busy.
class OtherProgram {
 public:
  OtherProgram() {
    for (unsigned i = 0; i <= std::thread::hardware_concurrency() / 4; ++i)
      threads_.emplace_back([this] {
        while (!over_.load(std::memory_order_relaxed)) {
        }
      });
  }
  ~OtherProgram() {
    over_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  OtherProgram(const OtherProgram&) = delete;
  OtherProgram& operator=(const OtherProgram&) = delete;

 private:
  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
};

}  // namespace millrace::program_test
