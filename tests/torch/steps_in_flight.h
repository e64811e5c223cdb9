// Steps that are submitted and read as StepQueue does, on any device.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "strategies/torch/device.h"

namespace millrace::test {

inline constexpr int kSteps = 20;

/// Submits kSteps steps of `work`, `inflight` of them in flight, with the marks of a ring for
/// `room`. Returns the times of those that have been read.
inline std::vector<train::FinishedStep> mark_steps(
    train::DeviceStreams& streams, int inflight, int room,
    const std::function<void()>& work = [] {}) {
  using Point = train::StepMarks::Point;
  train::MarkRing ring(room);
  std::deque<train::StepMarks*> queued;
  std::vector<train::FinishedStep> finished;
  const auto read_oldest = [&] {
    queued.front()->wait();
    finished.push_back(queued.front()->read(streams, finished.size()));
    queued.pop_front();
  };
  for (int step = 0; step < kSteps; ++step) {
    if (inflight > 0 && queued.size() == static_cast<std::size_t>(inflight)) read_oldest();
    queued.push_back(&ring.next());
    queued.back()->place(streams, Point::begin);
    work();
    queued.back()->place(streams, Point::end);
    if (inflight == 0) read_oldest();
  }
  return finished;
}

/// Sends 0, 1, 2, ... to `there` likewise, a number per step, from the places of a ring for `room`.
/// `work` is called behind each.
inline void send_numbers(
    train::DeviceStreams& streams, int inflight, int room, torch::Tensor there,
    const std::function<void(int step)>& work = [](int) {}) {
  train::StagedNumbers numbers(room);
  std::deque<std::unique_ptr<train::DeviceMark>> queued;
  for (int step = 0; step < kSteps; ++step) {
    if (queued.size() == static_cast<std::size_t>(inflight)) {
      queued.front()->wait();
      queued.pop_front();
    }
    numbers.send(streams, step, there);
    work(step);
    queued.push_back(streams.mark());
  }
}

}  // namespace millrace::test
