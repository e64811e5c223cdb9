// A data set in memory whose samples identify themselves.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "millrace/loader.h"
#include "millrace/reader.h"

namespace millrace::pipeline {

/// Images whose every pixel is their index modulo 251, with labels modulo 10.
class Numbered : public Reader {
 public:
  explicit Numbered(std::uint64_t count) : pixels_(count * kBytes + kTailSlack) {
    info_.reader = "numbered";
    info_.path = "memory";
    info_.split = "train";
    info_.count = count;
    info_.classes.resize(10);
    info_.size = {6, 5};
    info_.channels = 1;
    for (std::uint64_t i = 0; i < count; ++i)
      std::memset(&pixels_[i * kBytes], static_cast<int>(i % 251), kBytes);
  }
  Sample read(std::uint64_t index, Buffer&) const override {
    return {{&pixels_[index * kBytes], kBytes}, static_cast<std::int64_t>(index % 10)};
  }
  std::string name(std::uint64_t index) const override { return "image " + std::to_string(index); }

  static constexpr std::size_t kBytes = 30;

 protected:
  std::vector<std::uint8_t> pixels_;
};

/// Returns the options of two epochs in shuffled batches.
inline LoaderOptions two_epochs(int workers, std::int64_t batch) {
  LoaderOptions options;
  options.workers = workers;
  options.batch = batch;
  options.prefetch = 2;
  options.epochs = 2;
  options.seed = 5;
  return options;
}

}  // namespace millrace::pipeline
