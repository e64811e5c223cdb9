// Encoded images and masks as sources of pixels. Their decoding is recorded as a stage of its own.
#pragma once

#include <cstdint>

#include "measure/batch_history.h"
#include "millrace/transform.h"
#include "pipeline/decoders/decoder.h"
#include "pipeline/decoders/label_png.h"
#include "pipeline/loader/range_recorder.h"

namespace millrace::pipeline {

/// An encoded image, decoded only where pixels are requested.
class Decoding final : public PixelSource {
 public:
  Decoding(DecodeScratch& decode, int channels, Depth depth, RangeRecorder& recorder)
      : decode_(decode), channels_(channels), depth_(depth), recorder_(recorder) {}
  Size size() const override { return decode_.image().size; }
  std::uint32_t scales() const override { return decode_.image().scales; }
  bool serves_regions() const override { return true; }
  ImageView pixels(const Rect& region, int scale) override {
    recorder_.end(measure::Stage::augment, 0, 0);  // time spent planning
    const ImageView view = decode_.decode(channels_, region, scale, depth_);
    recorder_.end(measure::Stage::decode, 1,
                  static_cast<std::uint64_t>(region.x1 - region.x0) *
                      static_cast<std::uint64_t>(region.y1 - region.y0) *
                      static_cast<std::uint64_t>(channels_ * bytes_of(view.depth)));
    return view;
  }

 private:
  DecodeScratch& decode_;
  int channels_;
  Depth depth_;
  RangeRecorder& recorder_;
};

/// A mask whose unpacking counts as decoding.
class Unpacking final : public PixelSource {
 public:
  Unpacking(LabelPng& mask, RangeRecorder& recorder) : mask_(mask), recorder_(recorder) {}
  Size size() const override { return mask_.size(); }
  bool serves_regions() const override { return true; }
  ImageView pixels(const Rect& region, int) override {
    recorder_.end(measure::Stage::augment, 0, 0);
    const ImageView view = mask_.pixels(region, 0);
    recorder_.end(measure::Stage::decode, 0,
                  static_cast<std::uint64_t>(view.width) * static_cast<std::uint64_t>(region.y1));
    return view;
  }

 private:
  LabelPng& mask_;
  RangeRecorder& recorder_;
};

}  // namespace millrace::pipeline
