// What the pipeline knows of augmentation: a compiled chain that turns an image into one sample at
// its final place. The chain itself lives in augment/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "pipeline/image.h"
#include "pipeline/rng.h"

namespace millrace {

enum class DType { f32, u8, f16, bf16 };
enum class Layout { chw, hwc };

constexpr std::size_t size_of(DType dtype) {
  return dtype == DType::f32 ? 4 : dtype == DType::u8 ? 1 : 2;
}
constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::u8:
      return "u8";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    default:
      return "f32";
  }
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

/// Immutable; run() is called from many threads, each with a scratch of its own.
class Transform {
 public:
  /// Working memory of one thread.
  class Scratch {
   public:
    virtual ~Scratch() = default;
  };

  virtual ~Transform() = default;
  virtual std::unique_ptr<Scratch> make_scratch() const = 0;
  virtual const SampleSpec& output() const = 0;
  /// Draws what is random for `key` and writes the sample to `out` (output().bytes() bytes).
  /// Throws UsageError where the image's size does not lead to the output's size.
  virtual void run(const SampleKey& key, const ImageView& image, std::byte* out,
                   Scratch& scratch) const = 0;
};

}  // namespace millrace
