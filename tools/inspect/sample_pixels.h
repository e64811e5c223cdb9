// One sample's pixels without the loader; inspect runs plans on them.
#pragma once

#include <optional>

#include "millrace/reader.h"
#include "millrace/transform.h"
#include "pipeline/decoders/decoder.h"

namespace millrace::tools {

class SamplePixels final : public PixelSource {
 public:
  /// Reads the sample and, if it is encoded, parses the header. Throws DataError.
  SamplePixels(const Reader& reader, std::uint64_t index, int channels, std::uint64_t max_pixels)
      : channels_(channels) {
    const DatasetInfo& info = reader.info();
    const Sample sample = reader.read(index, bytes_);
    label_ = sample.label;
    if (info.encoded) {
      decode_.open(sample.bytes, max_pixels);
    } else {
      const std::uint8_t* pixels = sample.bytes.data();
      raw_ = info.planar ? planar(pixels, info.size, info.channels)
                         : interleaved(pixels, info.size, info.channels);
    }
  }

  Size size() const override { return raw_ ? raw_->size() : decode_.image().size; }
  std::uint32_t scales() const override { return raw_ ? 1 : decode_.image().scales; }
  bool serves_regions() const override { return !raw_; }
  ImageView pixels(const Rect& region, int scale) override {
    return raw_ ? *raw_ : decode_.decode(channels_, region, scale);
  }
  std::int64_t label() const { return label_; }

 private:
  int channels_;
  std::int64_t label_ = 0;
  Buffer bytes_;
  pipeline::DecodeScratch decode_;
  std::optional<ImageView> raw_;
};

}  // namespace millrace::tools
