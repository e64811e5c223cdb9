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
  int open = 0;  ///< marks of work that nobody has waited for
  int max_open = 0;
  int clocks = 0;
  int asides = 0;
  int captures = 0;
  int replays = 0;
};

/// A mark that is reached when it is waited for.
class FakeMark final : public train::DeviceMark {
 public:
  FakeMark(DeviceCalls& calls, bool reached)
      : calls_(calls), reached_(reached), at_(base::Clock::now()) {
    if (!reached_) calls_.max_open = std::max(calls_.max_open, ++calls_.open);
  }
  bool reached() override { return reached_; }
  void wait() override {
    if (!reached_) --calls_.open;
    reached_ = true;
  }
  base::Clock::Ticks at() const { return at_; }

 private:
  DeviceCalls& calls_;
  bool reached_;
  base::Clock::Ticks at_;
};

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
    return std::make_unique<FakeMark>(calls_, false);
  }
  base::Clock::Ticks time_of(std::unique_ptr<train::DeviceMark> mark) override {
    mark->wait();
    return static_cast<const FakeMark&>(*mark).at();
  }
  void set_clock() override { ++calls_.clocks; }
  void on_side_stream(const std::function<void()>& work) override {
    ++calls_.asides;
    work();
  }
  torch::Tensor host_number() override { return torch::empty({}); }

 private:
  DeviceCalls& calls_;
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
