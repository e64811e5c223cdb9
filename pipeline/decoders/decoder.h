// One thread's decoding, through whichever decoder takes the bytes (include/millrace/millrace.h):
// built in (jpeg) or from plugins.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/buffer.h"
#include "millrace/image.h"
#include "plugins/host/unit.h"

namespace millrace::pipeline {

/// The decoder for these bytes; throws DataError naming what the bytes look like.
const millrace_unit& decoder_of(std::span<const std::uint8_t> bytes);

/// What an encoded image's header says.
struct EncodedImage {
  const millrace_unit* decoder = nullptr;
  Size stored;               ///< as in the file
  Size size;                 ///< as it is to be seen, after EXIF's orientation
  int channels = 0;          ///< 1 or 3 of the file
  int orientation = 1;       ///< EXIF's 1 to 8
  std::uint32_t scales = 1;  ///< bit n set: can be decoded at 1 / 2^n
};

/// One thread's working memory for decoding: codec contexts and the pixels of one image.
class DecodeScratch {
 public:
  DecodeScratch();
  ~DecodeScratch();
  DecodeScratch(const DecodeScratch&) = delete;
  DecodeScratch& operator=(const DecodeScratch&) = delete;

  /// Parses the header. Throws DataError (one line, without the sample's name) for damaged or
  /// unknown bytes, and for images of more than `max_pixels` pixels or with a side of more than
  /// kMaxImageSide, before it allocates anything.
  /// The bytes must stay where they are until decode().
  const EncodedImage& open(std::span<const std::uint8_t> bytes, std::uint64_t max_pixels);

  /// Decodes the image that was opened last, into memory that stays valid until the next call. The
  /// view has the size of the whole image (at 1 / 2^scale, sides rounded up), turned as EXIF says;
  /// its pixels may be read inside `region` of it, where they are the whole image's. May be called
  /// again for another region. `scale`: one of those that open() found.
  ImageView decode(int channels, const Rect& region, int scale = 0);

  /// What open() found.
  const EncodedImage& image() const { return image_; }

  /// Gives back the pixels' memory where it is more than `most` bytes.
  void trim(std::size_t most);

  /// The whole of an image.
  ImageView decode(std::span<const std::uint8_t> bytes, int channels, std::uint64_t max_pixels);

 private:
  struct Context;
  void* context_of(const millrace_unit& decoder);

  std::vector<Context> contexts_;
  plugins::CallContext call_;
  std::span<const std::uint8_t> bytes_;
  EncodedImage image_;
  Buffer pixels_;
};

}  // namespace millrace::pipeline
