// The decoders of PNG, TIFF and WebP, and what they share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "millrace/millrace.h"

namespace imgcodecs {

// Luma of BT.601 in the two roundings that OpenCV uses, so that gray images keep their levels.

/// Converts rows of red, green, blue (and `step` - 3 bytes that are skipped) to gray with weights
/// of `bits` bits that add up to 1.
template <int bits>
void to_gray(const std::uint8_t* from, std::size_t step, std::size_t count, std::uint8_t* out) {
  constexpr std::uint32_t kOne = 1u << bits;
  constexpr auto kRed = static_cast<std::uint32_t>(0.299 * kOne + 0.5);
  constexpr auto kGreen = static_cast<std::uint32_t>(0.587 * kOne + 0.5);
  constexpr std::uint32_t kBlue = kOne - kRed - kGreen;
  for (std::size_t i = 0; i < count; ++i, from += step)
    out[i] = static_cast<std::uint8_t>(
        (from[0] * kRed + from[1] * kGreen + from[2] * kBlue + kOne / 2) >> bits);
}

// Decodes PNG with libpng itself, which writes rows in place as they arrive and returns errors as
// text; OpenCV would print them to stderr. The transformations are those of OpenCV's imdecode, so
// levels are equal.

/// Implements millrace_decoder::decode for whole images whose header was read.
millrace_status decode_png(void* context, const std::uint8_t* bytes, std::size_t size,
                           const millrace_decode* request, std::uint8_t* pixels,
                           std::size_t row_bytes, millrace_call* call);

// Decodes TIFF with libtiff's conversion to RGBA. Levels equal those of OpenCV's imdecode, which
// uses the same conversion; unlike there, a damaged strip or tile is an error.

/// Implement millrace_decoder's functions of these names. A context holds a few rows of one image.
void* open_tiff(const void*);
void close_tiff(void* context);
/// Decodes the first picture of a file whose header was read, as it is stored: the host turns it.
millrace_status decode_tiff(void* context, const std::uint8_t* bytes, std::size_t size,
                            const millrace_decode* request, std::uint8_t* pixels,
                            std::size_t row_bytes, millrace_call* call);

// Decodes WebP with libwebp. Levels equal those of OpenCV's imdecode, which calls the same
// functions.

/// Implement millrace_decoder's functions of these names. A context holds the colours of one image
/// that is wanted in gray.
void* open_webp(const void*);
void close_webp(void* context);
/// Decodes a whole image whose header was read. Drops transparency.
millrace_status decode_webp(void* context, const std::uint8_t* bytes, std::size_t size,
                            const millrace_decode* request, std::uint8_t* pixels,
                            std::size_t row_bytes, millrace_call* call);

}  // namespace imgcodecs
