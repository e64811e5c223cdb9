// What the pipeline knows of augmentation: a compiled chain that turns an image into one sample at
// its final place. The chain itself lives in augment/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "millrace/image.h"

namespace millrace {

/// Names one sample's place in a run: what its random numbers depend on besides the op.
struct SampleKey {
  std::uint64_t seed = 0;
  std::uint32_t epoch = 0;
  std::uint64_t sample = 0;  ///< index in the data set; the lower 48 bits count
};

enum class DType { f32 = MILLRACE_F32, u8 = MILLRACE_U8, f16 = MILLRACE_F16, bf16 = MILLRACE_BF16 };
enum class Layout { chw = MILLRACE_CHW, hwc = MILLRACE_HWC };

constexpr std::size_t size_of(DType dtype) {
  return dtype == DType::f32 ? 4 : dtype == DType::u8 ? 1 : 2;
}
constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view kNames[] = {"f32", "u8", "f16", "bf16"};
  return kNames[static_cast<std::size_t>(dtype)];
}

/// Shape and type of one sample of a batch.
struct SampleSpec {
  Size size;
  int channels = 0;
  DType dtype = DType::f32;
  Layout layout = Layout::chw;

  std::size_t elements() const {
    return static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height) *
           static_cast<std::size_t>(channels);
  }
  std::size_t bytes() const { return elements() * size_of(dtype); }
};

/// One sample's pixels, on demand: a transform asks for what it will read.
class PixelSource {
 public:
  virtual ~PixelSource() = default;
  /// Of the whole image, as it is to be seen.
  virtual Size size() const = 0;
  /// Bit n set: pixels() can deliver 1 / 2^n of the sides.
  virtual std::uint32_t scales() const { return 1; }
  /// Whether pixels() does less for a smaller region.
  virtual bool serves_regions() const { return false; }
  /// A view of the whole image (at 1 / 2^scale, sides rounded up) whose pixels may be read inside
  /// `region` of it; valid until the next call. Throws DataError.
  virtual ImageView pixels(const Rect& region, int scale) = 0;
};

/// Pixels that are there already.
class WholeImage final : public PixelSource {
 public:
  explicit WholeImage(const ImageView& image) : image_(image) {}
  Size size() const override { return image_.size(); }
  ImageView pixels(const Rect&, int) override { return image_; }

 private:
  ImageView image_;
};

/// Immutable; run() is called from many threads, each with a scratch of its own.
class Transform {
 public:
  /// Working memory of one thread.
  class Scratch {
   public:
    virtual ~Scratch() = default;
    /// Gives back every piece of memory larger than `most` bytes.
    virtual void trim(std::size_t /*most*/) {}
  };

  virtual ~Transform() = default;
  virtual std::unique_ptr<Scratch> make_scratch() const = 0;
  virtual const SampleSpec& output() const = 0;
  /// Images of the source's size that run() may keep besides the source.
  virtual int full_copies() const { return 0; }
  /// Draws what is random for `key` and writes the sample to `out` (output().bytes() bytes).
  /// Throws DataError for an image that an op cannot take, and UsageError where the chain leads
  /// from the image's size to another than the output's.
  virtual void run(const SampleKey& key, PixelSource& source, std::byte* out,
                   Scratch& scratch) const = 0;

  /// Classes of the labels' probabilities that mix() changes; 0: labels stay whole numbers.
  virtual int soft_classes() const { return 0; }
  /// Changes two neighbours of a batch and their labels in place; `key` is the first one's.
  virtual void mix(const SampleKey& /*key*/, std::byte* /*first*/, std::byte* /*second*/,
                   float* /*first_labels*/, float* /*second_labels*/, Scratch& /*scratch*/) const {}
};

}  // namespace millrace
