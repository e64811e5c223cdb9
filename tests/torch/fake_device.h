// Stand-in for a device: the CPU, with marks that are reached when somebody waits for them, and a
// graph that runs the host's code again.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "strategies/torch/cuda_library.h"
#include "strategies/torch/device.h"

namespace millrace::test {

/// Calls that a run has made to its device.
struct DeviceCalls {
  int copies = 0;
  int joins = 0;
  int answers = 0;        ///< copies back
  int fences = 0;         ///< placed by fence()
  int untimed = 0;        ///< marks made for join() and fence()
  int unread_fences = 0;  ///< fences that nobody has waited for
  int max_unread_fences = 0;
  int open = 0;  ///< marks of work that nobody has waited for
  int max_open = 0;
  int marks = 0;  ///< made by mark()
  int clocks = 0;
  int asides = 0;
  int captures = 0;
  int replays = 0;

  /// Returns the steps submitted by graphs and their warm-ups.
  int work() const { return asides - captures + replays; }
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
    for (const auto& [place, value] : std::exchange(numbers_, {}))
      EXPECT_EQ(place.item<float>(), value) << "a number was written again before it was copied";
  }
  /// Notes numbers that must be unchanged when the mark is reached.
  void guard(std::vector<std::pair<at::Tensor, float>> numbers) { numbers_ = std::move(numbers); }
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
  std::vector<std::pair<at::Tensor, float>> numbers_;
};

/// A mark of join() or fence(). Fails if it is placed again although nobody has waited for it.
class UntimedMark final : public FakeMark {
 public:
  explicit UntimedMark(DeviceCalls& calls) : FakeMark(calls, true) {}
  void place_again(bool fence) {
    EXPECT_TRUE(reached() || copies_wait_) << "nobody has waited for the mark that is placed again";
    place(false);
    fence_ = fence;
    copies_wait_ = false;
    work_ = calls_.work();
    if (fence_)
      calls_.max_unread_fences = std::max(calls_.max_unread_fences, ++calls_.unread_fences);
  }
  /// Notes that copies wait for it. Returns the steps that were submitted before it.
  int work_before_copies() {
    copies_wait_ = true;
    return work_;
  }
  void wait() override {
    if (fence_ && !reached()) --calls_.unread_fences;
    FakeMark::wait();
  }

 private:
  bool fence_ = false;
  bool copies_wait_ = false;
  int work_ = 0;
};

/// Fails where a device's event would be recorded again although its time is still needed, where
/// times are asked for out of order, and where memory is written while the device may still read
/// it.
class FakeStreams : public train::DeviceStreams {
 public:
  explicit FakeStreams(DeviceCalls& calls) : calls_(calls) {}
  torch::Tensor copy(const torch::Tensor& host) override {
    ++calls_.copies;
    return host.clone();
  }
  void copy_into(torch::Tensor& there, const torch::Tensor& host,
                 train::DeviceMark& read) override {
    ++calls_.copies;
    const auto place = written_.try_emplace(there.const_data_ptr(), -1).first;
    EXPECT_GT(static_cast<UntimedMark&>(read).work_before_copies(), place->second)
        << "the step on what the memory holds may still read it";
    place->second = calls_.work();
    there.copy_(host);
  }
  void send_number(const torch::Tensor& host, torch::Tensor& there) override {
    there.copy_(host);
    sent_.emplace_back(host, host.item<float>());
  }
  std::unique_ptr<train::DeviceMark> mark() override {
    ++calls_.marks;
    auto mark = std::make_unique<FakeMark>(calls_, false);
    mark->guard(std::exchange(sent_, {}));
    return mark;
  }
  void mark_again(train::DeviceMark& mark) override {
    auto& fake = static_cast<FakeMark&>(mark);
    EXPECT_TRUE(fake.reached()) << "the device has not reached the mark that is placed again";
    EXPECT_TRUE(fake.was_read()) << "nobody has read the mark that is placed again";
    EXPECT_NE(&mark, last_) << "the next time is measured from the mark that is placed again";
    fake.place(false);
    fake.guard(std::exchange(sent_, {}));
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

 protected:
  std::unique_ptr<train::DeviceMark> make_untimed() override {
    ++calls_.untimed;
    return std::make_unique<UntimedMark>(calls_);
  }
  void place_join(train::DeviceMark& mark) override {
    ++calls_.joins;
    static_cast<UntimedMark&>(mark).place_again(/*fence=*/false);
  }
  void place_fence(train::DeviceMark& mark) override {
    ++calls_.fences;
    static_cast<UntimedMark&>(mark).place_again(/*fence=*/true);
  }

 private:
  DeviceCalls& calls_;
  const train::DeviceMark* last_ = nullptr;  ///< mark whose time was asked for last
  base::Clock::Ticks last_at_ = 0;
  std::map<const void*, int> written_;  ///< steps submitted before the last copy, by place
  std::vector<std::pair<at::Tensor, float>> sent_;  ///< numbers since the last mark
};

/// Behaves like a CUDA graph: a capture does no work, and every replay reads and writes the memory
/// of the capture.
class FakeGraph final : public train::DeviceGraph {
 public:
  using Tensors = std::vector<at::Tensor>;

  /// Says whether a capture runs the host's code, as a device does, without the work on tensors.
  enum class Host { left_out, runs };

  /// `parameters` returns the tensors that get gradients; `state` returns all that must keep its
  /// memory.
  FakeGraph(DeviceCalls& calls, std::function<Tensors()> parameters, std::function<Tensors()> state,
            Host host = Host::left_out)
      : calls_(calls), parameters_(std::move(parameters)), state_(std::move(state)), host_(host) {}

  std::vector<at::Tensor> capture(const Work& work) override {
    ++calls_.captures;
    work_ = work;
    places_ = places();
    results_ = {at::full({}, kUnwritten)};
    for (const at::Tensor& parameter : parameters_()) {
      EXPECT_FALSE(parameter.grad().defined()) << "backward would add to what is there";
      results_.push_back(at::full_like(parameter, kUnwritten));
    }
    if (host_ == Host::runs) {
      Tensors before;
      for (const at::Tensor& tensor : state_()) before.push_back(tensor.detach().clone());
      work();
      const at::NoGradGuard no_grad;
      const Tensors after = state_();
      for (std::size_t i = 0; i < before.size(); ++i) after[i].detach().copy_(before[i]);
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

  std::unique_ptr<train::DeviceGraph> sibling() override {
    return std::make_unique<FakeGraph>(calls_, parameters_, state_, host_);
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
  Host host_;
  Work work_;
  Tensors results_;
  std::vector<const void*> places_;
};

}  // namespace millrace::test
