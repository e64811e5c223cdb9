// Makes encoded images smaller for `data pack`.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "millrace/image.h"

namespace millrace::tools {

struct ShrinkOptions {
  int short_side = 0;  ///< shorter side after packing, in pixels; 0: any
  int max_side = 0;    ///< longer side after packing, in pixels; 0: any
  int quality = 90;    ///< of the JPEG that is written, 1 to 100

  bool wanted() const { return short_side > 0 || max_side > 0; }
};

/// Returns the size that an upright image of `size` gets: never a larger one, with the aspect ratio
/// kept up to rounding.
Size shrunk(Size size, const ShrinkOptions& options);

/// Shrinks images on one thread.
class Shrinker {
 public:
  explicit Shrinker(const ShrinkOptions& options);
  ~Shrinker();
  Shrinker(const Shrinker&) = delete;
  Shrinker& operator=(const Shrinker&) = delete;

  /// Returns the image decoded, turned upright, resized (bilinear, widened where it shrinks, as the
  /// op `resize`) and encoded as JPEG; or the bytes as they are if it is small enough. Throws
  /// DataError for an image that cannot be decoded.
  std::vector<std::uint8_t> run(std::span<const std::uint8_t> bytes);

 private:
  struct State;
  ShrinkOptions options_;
  std::unique_ptr<State> state_;
};

}  // namespace millrace::tools
