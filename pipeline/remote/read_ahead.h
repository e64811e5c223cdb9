// Threads that fetch what will be read later.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace millrace::pipeline {

/// Does tasks in the order in which they are added, on some threads, which start with the first.
class ReadAhead {
 public:
  using Task = std::function<void(std::size_t)>;
  /// `task` must not throw.
  ReadAhead(int threads, Task task) : most_(threads), task_(std::move(task)) {}
  /// Waits for tasks that have begun, and forgets the others.
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  void add(std::size_t number);

 private:
  void run();

  const int most_;
  const Task task_;
  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<std::size_t> waiting_;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace millrace::pipeline
