// Runs tasks on threads.
#include "pipeline/remote/read_ahead.h"

#include <pthread.h>

#include <system_error>

namespace millrace::pipeline {

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  added_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReadAhead::add(std::size_t number) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(number);
  try {
    if (static_cast<int>(threads_.size()) < most_) threads_.emplace_back([this] { run(); });
  } catch (const std::system_error&) {  // without a thread, readers fetch for themselves
    if (threads_.empty()) waiting_.clear();
  }
  added_.notify_one();
}

void ReadAhead::run() {
  pthread_setname_np(pthread_self(), "fetch");  // for top, perf and bench/remote.py
  while (true) {
    std::unique_lock lock(mutex_);
    added_.wait(lock, [this] { return ends_ || !waiting_.empty(); });
    if (ends_) return;
    const std::size_t number = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    task_(number);
  }
}

}  // namespace millrace::pipeline
