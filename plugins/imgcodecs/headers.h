// Width and height from an image file's first bytes, by hand: the host refuses a picture that is
// too large before any codec allocates for it, and OpenCV only tells the size after decoding.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plugins/millrace.h"

namespace imgcodecs {

/// Null on success, else what is wrong. None reads beyond `size`.
using ReadHeader = const char* (*)(const std::uint8_t* bytes, std::size_t size,
                                   millrace_image_header& header);

const char* png_header(const std::uint8_t* bytes, std::size_t size, millrace_image_header& header);
const char* bmp_header(const std::uint8_t* bytes, std::size_t size, millrace_image_header& header);
const char* webp_header(const std::uint8_t* bytes, std::size_t size, millrace_image_header& header);
/// Of the first picture in the file.
const char* tiff_header(const std::uint8_t* bytes, std::size_t size, millrace_image_header& header);

}  // namespace imgcodecs
