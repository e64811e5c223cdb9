// A data set in memory whose images have masks.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "millrace/reader.h"
#include "tests/data/png_file.h"

namespace millrace::pipeline {

/// Gray images of one size, and a mask for each with the same levels.
class Masked final : public Reader {
 public:
  Masked(Size size, std::vector<test::Bytes> levels) : levels_(std::move(levels)) {
    info_.reader = "masked";
    info_.path = "memory";
    info_.split = "train";
    info_.count = levels_.size();
    info_.classes.resize(1);
    info_.size = size;
    info_.channels = 1;
    info_.masks = true;
    for (test::Bytes& image : levels_) {
      files_.push_back(test::label_png(size, image));
      image.resize(image.size() + kTailSlack);
    }
  }
  Sample read(std::uint64_t index, Buffer&) const override {
    return {{levels_[index].data(), levels_[index].size() - kTailSlack}, 0};
  }
  std::string name(std::uint64_t index) const override { return "image " + std::to_string(index); }
  std::span<const std::uint8_t> mask(std::uint64_t index, Buffer&) const override {
    return files_[index];
  }
  /// Replaces the file of a mask.
  void set_mask(std::uint64_t index, test::Bytes file) { files_[index] = std::move(file); }

 private:
  std::vector<test::Bytes> levels_, files_;
};

}  // namespace millrace::pipeline
