// Width, height and orientation from an image file's bytes, by hand: the host refuses a picture
// that is too large before any codec allocates for it, and OpenCV only tells the size after
// decoding, and would move the pixels of a turned image.
#pragma once

#include <cstddef>
#include <cstdint>

#include "millrace/millrace.h"

namespace imgcodecs {

struct Header {
  millrace_image_header image;
  /// Most pixels that a file of this kind can hold: so many, and so many per byte.
  std::uint64_t most = 0;
  std::uint64_t max_per_byte = 0;
};

/// Null on success, else what is wrong. None reads beyond `size`.
using ReadHeader = const char* (*)(const std::uint8_t* bytes, std::size_t size, Header& header);

const char* png_header(const std::uint8_t* bytes, std::size_t size, Header& header);
const char* bmp_header(const std::uint8_t* bytes, std::size_t size, Header& header);
const char* webp_header(const std::uint8_t* bytes, std::size_t size, Header& header);
/// Of the first picture in the file, as it is to be seen: OpenCV turns TIFF, whatever it is told,
/// so nothing is left for the host to turn.
const char* tiff_header(const std::uint8_t* bytes, std::size_t size, Header& header);

}  // namespace imgcodecs
