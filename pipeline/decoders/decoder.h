// Decoding: picks and runs a decoder on one thread, and turns images as EXIF says.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/private_api.h"
#include "millrace/buffer.h"
#include "millrace/image.h"
#include "plugins/host/unit.h"

namespace millrace::pipeline {

// EXIF orientations as views: changes the strides of an image and moves no pixel.

/// Maps a position in the upright image to the stored one: x and y swap (`transposed`), then each
/// runs from the other end (`mirrored_x`, `mirrored_y`).
struct Orientation {
  bool transposed, mirrored_x, mirrored_y;
};

/// Decodes EXIF orientations 1 to 8 (EXIF 2.32, table of tag 0x0112).
constexpr Orientation orientation_of(int orientation) {
  constexpr Orientation kOrientations[] = {
      {false, false, false},  // 1: as stored
      {false, true, false},   // 2: mirrored
      {false, true, true},    // 3: rotated by 180 degrees
      {false, false, true},   // 4: upside down and mirrored
      {true, false, false},   // 5: transposed
      {true, false, true},    // 6: to be rotated right
      {true, true, true},     // 7: transposed and mirrored both ways
      {true, true, false},    // 8: to be rotated left
  };
  return kOrientations[orientation - 1];
}

constexpr Size oriented(Size stored, Orientation orientation) {
  return orientation.transposed ? Size{stored.height, stored.width} : stored;
}

/// Returns the part of the stored image (of size `stored`) that `seen` shows.
constexpr Rect stored_rect(const Rect& seen, Size stored, Orientation orientation) {
  Rect rect = orientation.transposed ? Rect{seen.y0, seen.x0, seen.y1, seen.x1} : seen;
  if (orientation.mirrored_x)
    rect.x0 = stored.width - std::exchange(rect.x1, stored.width - rect.x0);
  if (orientation.mirrored_y)
    rect.y0 = stored.height - std::exchange(rect.y1, stored.height - rect.y0);
  return rect;
}

/// Returns a view of the whole stored image, turned.
constexpr ImageView oriented(ImageView view, Orientation orientation) {
  if (orientation.mirrored_x) {
    view.data += (view.width - 1) * view.pixel;
    view.pixel = -view.pixel;
  }
  if (orientation.mirrored_y) {
    view.data += (view.height - 1) * view.row;
    view.row = -view.row;
  }
  if (orientation.transposed) {
    std::swap(view.row, view.pixel);
    std::swap(view.width, view.height);
  }
  return view;
}

// Decoding on one thread: picks the decoder that accepts the bytes (built in, or from a plugin) and
// runs it.

/// Returns the decoder for these bytes. Throws DataError that says what the bytes look like.
MILLRACE_PRIVATE_API const millrace_unit& decoder_of(std::span<const std::uint8_t> bytes);

/// Contents of an encoded image's header.
struct EncodedImage {
  const millrace_unit* decoder = nullptr;
  Size stored;               ///< as in the file
  Size size;                 ///< upright, after EXIF's orientation
  int channels = 0;          ///< 1 or 3, as in the file
  Depth depth = Depth::u8;   ///< at which decode() can deliver the values of the file
  int bands = 0;             ///< number of channels at that depth
  int orientation = 1;       ///< EXIF's 1 to 8
  std::uint32_t scales = 1;  ///< bit n set: can be decoded at 1 / 2^n
};

/// Working memory of one thread for decoding: codec contexts and the pixels of one image.
class MILLRACE_PRIVATE_API DecodeScratch {
 public:
  DecodeScratch();
  ~DecodeScratch();
  DecodeScratch(const DecodeScratch&) = delete;
  DecodeScratch& operator=(const DecodeScratch&) = delete;

  /// Sets whether libjpeg-turbo decodes the Huffman codes of all JPEG images (`decode.jpeg`), not
  /// only of those that millrace leaves to it, which is the default. The pixels are the same.
  void use_libjpeg(bool always);

  /// Parses the header. The bytes must stay in place until decode(). Throws DataError (one line,
  /// without the sample's name) for damaged or unknown bytes. Throws it before allocating anything
  /// for images of more than `max_pixels` pixels or with a side longer than kMaxImageSide
  /// (bounded-memory contract).
  const EncodedImage& open(std::span<const std::uint8_t> bytes, std::uint64_t max_pixels);

  /// Decodes the image that was opened last, at one of the scales that open() found. The view is
  /// valid until the next call. It has the size of the whole image (at 1 / 2^scale, sides rounded
  /// up), turned upright; only its pixels inside `region` may be read, and they equal those of a
  /// decode of the whole image. May be called again for another region. With `depth` u8 it has 8
  /// bits, otherwise the depth of the file; an image of another number of channels then, or of
  /// floats where u16 is asked for, is a DataError. Pixels that need no decoding are viewed where
  /// they lie, in the bytes passed to open().
  ImageView decode(int channels, const Rect& region, int scale = 0, Depth depth = Depth::u8);

  /// Returns the header that open() parsed.
  const EncodedImage& image() const { return image_; }

  /// Frees the pixels' memory if it is more than `most` bytes.
  void trim(std::size_t most);

  /// Opens and decodes a whole image.
  ImageView decode(std::span<const std::uint8_t> bytes, int channels, std::uint64_t max_pixels);

 private:
  struct Context;
  void* context_of(const millrace_unit& decoder);
  /// Throws DataError if the image that was opened last is not of this form.
  void require_form(int channels, Depth depth) const;

  std::vector<Context> contexts_;
  bool only_libjpeg_ = false;
  std::uint64_t max_bytes_ = 0;  ///< of pixels as floats
  plugins::CallContext call_;
  std::span<const std::uint8_t> bytes_;
  EncodedImage image_;
  Buffer pixels_;
};

}  // namespace millrace::pipeline
