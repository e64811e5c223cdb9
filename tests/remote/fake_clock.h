// A clock for retries that need not wait.
#pragma once

#include <atomic>

#include "pipeline/remote/fetch.h"

namespace millrace::test {

/// A clock that sleeping moves on, and nothing else.
class FakeClock final : public pipeline::RetryClock {
 public:
  double now_s() override { return now_; }
  void sleep(double seconds, const std::atomic<bool>*) override { now_ += seconds; }

 private:
  double now_ = 0;
};

}  // namespace millrace::test
