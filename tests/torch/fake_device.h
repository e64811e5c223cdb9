// Stand-in for a device: the CPU, with marks that are reached when somebody waits for them, and a
// graph that runs the host's code again.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "strategies/torch/cuda_library.h"
#include "strategies/torch/device.h"

namespace millrace::test {

/// Calls that a run has made to its device.
struct DeviceCalls {
  int copies = 0;
  int joins = 0;
  int answers = 0;        ///< copies back
  int fences = 0;         ///< made by fence()
  int unread_fences = 0;  ///< fences that nobody has waited for
  int max_unread_fences = 0;
  int open = 0;  ///< marks of work that nobody has waited for
  int max_open = 0;
  int marks = 0;  ///< made by mark()
  int clocks = 0;
  int asides = 0;
  int captures = 0;
  int replays = 0;
};

/// A mark that is reached when it is waited for, as is all that was placed before it.
class FakeMark : public train::DeviceMark {
 public:
  FakeMark(DeviceCalls& calls, bool reached) : calls_(calls) { place(reached); }
  void place(bool reached) {
    reached_ = reached;
    read_ = false;
    at_ = base::Clock::now();
    if (!reached_) calls_.max_open = std::max(calls_.max_open, ++calls_.open);
  }
  bool reached() override { return reached_; }
  void wait() override {
    if (!reached_) --calls_.open;
    reached_ = true;
  }
  /// Returns when it was placed, and notes that somebody has asked.
  base::Clock::Ticks read() {
    read_ = true;
    return at_;
  }
  bool was_read() const { return read_; }

 protected:
  DeviceCalls& calls_;

 private:
  bool reached_ = false;
  bool read_ = false;
  base::Clock::Ticks at_ = 0;
};

/// A mark of fence().
class FakeFence final : public FakeMark {
 public:
  explicit FakeFence(DeviceCalls& calls) : FakeMark(calls, false) {
    calls_.max_unread_fences = std::max(calls_.max_unread_fences, ++calls_.unread_fences);
  }
  void wait() override {
    if (!reached()) --calls_.unread_fences;
    FakeMark::wait();
  }
};

/// Fails where a device's event would be recorded again although its time is still needed, and
/// where times are asked for out of order.
class FakeStreams final : public train::DeviceStreams {
 public:
  explicit FakeStreams(DeviceCalls& calls) : calls_(calls) {}
  torch::Tensor copy(const torch::Tensor& host) override {
    ++calls_.copies;
    return host.clone();
  }
  std::unique_ptr<train::DeviceMark> join() override {
    ++calls_.joins;
    return std::make_unique<FakeMark>(calls_, false);
  }
  std::unique_ptr<train::DeviceMark> mark() override {
    ++calls_.marks;
    return std::make_unique<FakeMark>(calls_, false);
  }
  void mark_again(train::DeviceMark& mark) override {
    auto& fake = static_cast<FakeMark&>(mark);
    EXPECT_TRUE(fake.reached()) << "the device has not reached the mark that is placed again";
    EXPECT_TRUE(fake.was_read()) << "nobody has read the mark that is placed again";
    EXPECT_NE(&mark, last_) << "the next time is measured from the mark that is placed again";
    fake.place(false);
  }
  base::Clock::Ticks time_of(train::DeviceMark& mark) override {
    auto& fake = static_cast<FakeMark&>(mark);
    fake.wait();
    last_ = &mark;
    EXPECT_GE(fake.read(), last_at_) << "times are asked for in the order of the marks";
    last_at_ = fake.read();
    return last_at_;
  }
  void set_clock() override {
    ++calls_.clocks;
    last_ = nullptr;
  }
  void on_side_stream(const std::function<void()>& work) override {
    ++calls_.asides;
    work();
  }
  torch::Tensor host_number() override { return torch::empty({}); }
  torch::Tensor to_host(const torch::Tensor& there) override {
    ++calls_.answers;
    return there.clone();
  }
  std::unique_ptr<train::DeviceMark> fence() override {
    ++calls_.fences;
    return std::make_unique<FakeFence>(calls_);
  }

 private:
  DeviceCalls& calls_;
  const train::DeviceMark* last_ = nullptr;  ///< mark whose time was asked for last
  base::Clock::Ticks last_at_ = 0;
};

/// Behaves like a CUDA graph: a capture does no work, and every replay reads and writes the memory
/// of the capture.
class FakeGraph final : public train::DeviceGraph {
 public:
  using Tensors = std::vector<at::Tensor>;

  /// `parameters` returns the tensors that get gradients; `state` returns all that must keep its
  /// memory.
  FakeGraph(DeviceCalls& calls, std::function<Tensors()> parameters, std::function<Tensors()> state)
      : calls_(calls), parameters_(std::move(parameters)), state_(std::move(state)) {}

  std::vector<at::Tensor> capture(const Work& work) override {
    ++calls_.captures;
    work_ = work;
    places_ = places();
    results_ = {at::full({}, kUnwritten)};
    for (const at::Tensor& parameter : parameters_()) {
      EXPECT_FALSE(parameter.grad().defined()) << "backward would add to what is there";
      results_.push_back(at::full_like(parameter, kUnwritten));
    }
    return results_;
  }

  void replay() override {
    ++calls_.replays;
    EXPECT_EQ(places(), places_) << "a graph would work on memory that is no longer the model's";
    const Tensors results = work_();
    ASSERT_EQ(results.size(), results_.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(results[i].strides(), results_[i].strides());
      results_[i].copy_(results[i]);
    }
  }

 private:
  static constexpr float kUnwritten = std::numeric_limits<float>::quiet_NaN();

  std::vector<const void*> places() const {
    std::vector<const void*> all;
    for (const at::Tensor& tensor : state_()) all.push_back(tensor.const_data_ptr());
    return all;
  }

  DeviceCalls& calls_;
  std::function<Tensors()> parameters_, state_;
  Work work_;
  Tensors results_;
  std::vector<const void*> places_;
};

}  // namespace millrace::test
