// Threads of replicas, one each, for the strategy's lifetime. Independent of LibTorch.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/private_api.h"

namespace millrace::train {

/// Runs a function for replicas 0 to count - 1 concurrently: 0 on the calling thread, each of the
/// others always on the same thread of its own.
class MILLRACE_PRIVATE_API ReplicaThreads {
 public:
  explicit ReplicaThreads(int count);
  ~ReplicaThreads();
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  int count() const { return static_cast<int>(threads_.size()) + 1; }
  /// Runs work(0) on this thread while the others run, then `waiting` (may be empty), then waits
  /// for all of them. Afterwards throws the exception of the lowest replica that threw.
  void run(const std::function<void(int)>& work, const std::function<void()>& waiting);

 private:
  ReplicaThreads() = default;
  void loop(int replica);

  std::mutex mutex_;
  std::condition_variable begin_, end_;
  const std::function<void(int)>* work_ = nullptr;
  std::size_t round_ = 0;  ///< number of calls of run()
  int running_ = 0;
  bool quit_ = false;
  std::vector<std::exception_ptr> failures_;  ///< by replica
  std::vector<std::thread> threads_;
};

}  // namespace millrace::train
