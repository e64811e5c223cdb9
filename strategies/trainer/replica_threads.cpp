// Runs a function on all replica threads and collects their errors.
#include "strategies/trainer/replica_threads.h"

namespace millrace::train {

// If a thread cannot be started, the delegated constructor's object is destroyed, which ends the
// others.
ReplicaThreads::ReplicaThreads(int count) : ReplicaThreads() {
  failures_.resize(static_cast<std::size_t>(count));
  for (int replica = 1; replica < count; ++replica)
    threads_.emplace_back([this, replica] { loop(replica); });
}

ReplicaThreads::~ReplicaThreads() {
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  begin_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReplicaThreads::loop(int replica) {
  for (std::size_t round = 1;; ++round) {
    std::unique_lock lock(mutex_);
    begin_.wait(lock, [&] { return quit_ || round_ >= round; });
    if (quit_) return;
    const std::function<void(int)>& work = *work_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      work(replica);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failures_[static_cast<std::size_t>(replica)] = failure;
    if (--running_ == 0) end_.notify_one();
  }
}

void ReplicaThreads::run(const std::function<void(int)>& work,
                         const std::function<void()>& waiting) {
  {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    running_ = static_cast<int>(threads_.size());
    ++round_;
  }
  begin_.notify_all();
  failures_[0] = nullptr;
  try {
    work(0);
  } catch (...) {
    failures_[0] = std::current_exception();
  }
  if (waiting) waiting();
  std::unique_lock lock(mutex_);
  end_.wait(lock, [&] { return running_ == 0; });
  for (const std::exception_ptr& failure : failures_)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace millrace::train
