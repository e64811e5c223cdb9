// The built-in JPEG decoder, as the rest of the program sees it beside its table of functions: who
// decodes entropy-coded data, millrace or libjpeg-turbo, and how often. The pixels are the same.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/private_api.h"
#include "millrace/millrace.h"

namespace millrace::pipeline {

/// Decoder of an image's Huffman codes: millrace, or libjpeg-turbo for the given reason.
enum class JpegRoute : std::uint8_t {
  own,          ///< millrace
  asked,        ///< libjpeg-turbo, because decode.jpeg=libjpeg
  unavailable,  ///< because why_libjpeg() is not empty
  scans,        ///< because the file has several scans, as progressive files do
  arithmetic,   ///< because the file has arithmetic codes
  inks,         ///< because the file has four components, as CMYK files do
  irregular,    ///< because the data is damaged, or has what no encoder writes
};
inline constexpr std::size_t kJpegRoutes = 7;

/// Numbers of images by route. Images that no decoder could decode count only if they were
/// irregular.
using JpegCounts = std::array<std::uint64_t, kJpegRoutes>;

/// Returns the numbers of images that this process has decoded.
MILLRACE_PRIVATE_API JpegCounts jpeg_counts();

/// Returns the route's name in records.
MILLRACE_PRIVATE_API std::string_view name_of(JpegRoute route);

/// Returns one line about the routes of images: the share that is millrace's, and why not the rest.
/// Empty for no images.
MILLRACE_PRIVATE_API std::string jpeg_summary(const JpegCounts& counts);

/// Returns why libjpeg-turbo decodes the codes of every image; empty if millrace does. The first
/// call, and the first image, decode small pictures both ways and compare.
MILLRACE_PRIVATE_API const char* why_libjpeg();

/// Returns the built-in decoder.
const millrace_unit& jpeg_decoder();

/// Sets whether libjpeg-turbo decodes the codes of all images of a context of that decoder.
void use_libjpeg(void* context, bool always);

}  // namespace millrace::pipeline
