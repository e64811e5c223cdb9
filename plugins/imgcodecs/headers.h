// Reads width, height and orientation from an image file's bytes. The host can then reject a
// picture that is too large before any codec allocates for it (bounded-memory contract), and turn
// it without moving pixels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "millrace/millrace.h"

namespace imgcodecs {

struct Header {
  millrace_image_header image;
  /// Largest number of pixels that a file of this kind can hold: a constant, plus a number per
  /// byte.
  std::uint64_t most = 0;
  std::uint64_t max_per_byte = 0;
};

/// Parses a header. Returns null, or what is wrong. Reads nothing beyond `size`.
using ReadHeader = const char* (*)(const std::uint8_t* bytes, std::size_t size, Header& header);

const char* png_header(const std::uint8_t* bytes, std::size_t size, Header& header);
const char* bmp_header(const std::uint8_t* bytes, std::size_t size, Header& header);
const char* webp_header(const std::uint8_t* bytes, std::size_t size, Header& header);
/// Parses the header of the first picture in the file.
const char* tiff_header(const std::uint8_t* bytes, std::size_t size, Header& header);

}  // namespace imgcodecs
