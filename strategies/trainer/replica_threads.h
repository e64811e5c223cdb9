// One thread a replica, for as long as the strategy lives. Free of LibTorch.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace millrace::train {

/// Runs a function for replicas 0 to count - 1 at once: 0 on the calling thread, the others on
/// threads of their own, always the same.
class ReplicaThreads {
 public:
  explicit ReplicaThreads(int count);
  ~ReplicaThreads();
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  int count() const { return static_cast<int>(threads_.size()) + 1; }
  /// Runs work(0) here while the others run, then `waiting` (which may be empty), then waits for
  /// all of them. Throws what the lowest replica threw, once all have ended.
  void run(const std::function<void(int)>& work, const std::function<void()>& waiting);

 private:
  ReplicaThreads() = default;
  void loop(int replica);

  std::mutex mutex_;
  std::condition_variable begin_, end_;
  const std::function<void(int)>* work_ = nullptr;
  std::size_t round_ = 0;  ///< calls of run() so far
  int running_ = 0;
  bool quit_ = false;
  std::vector<std::exception_ptr> failures_;  ///< by replica
  std::vector<std::thread> threads_;
};

}  // namespace millrace::train
