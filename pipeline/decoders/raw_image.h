// Raw images: pixels behind a short header, as `data pack --format raw` stores them. They are not
// decoded: augmentations read them where they lie. docs/reference/shard-index.md lists every field.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/private_api.h"
#include "millrace/image.h"

namespace millrace::pipeline {

/// Ending of a raw image's file name.
inline constexpr std::string_view kRawEnding = ".pixels";

/// A raw image in memory. Does not own the pixels.
struct RawImage {
  /// Version 2 has values of more than 8 bits, or more or fewer channels than 1 or 3.
  static constexpr std::uint32_t kVersion = 1, kDeepVersion = 2;
  static constexpr std::size_t kHeaderBytes = 64;

  Size size;         ///< upright
  int channels = 0;  ///< interleaved; at most kMaxChannels
  Depth depth = Depth::u8;
  const std::uint8_t* pixels = nullptr;  ///< height x width x channels values

  ImageView view() const { return interleaved(pixels, size, channels, depth); }
};

/// Returns whether the bytes begin like a raw image.
MILLRACE_PRIVATE_API bool is_raw(std::span<const std::uint8_t> bytes);

/// Parses and checks a raw image's header and length. Throws DataError.
MILLRACE_PRIVATE_API RawImage parse_raw(std::span<const std::uint8_t> bytes);

/// Compares the pixels with the header's checksum, which decoding does not. Throws DataError.
MILLRACE_PRIVATE_API void check_raw_pixels(std::span<const std::uint8_t> bytes);

/// Writes the header of kHeaderBytes bytes that makes a raw image of the pixels behind it, which
/// are interleaved. `pixel_sum` is their XXH3; 0 where the image never becomes a file: decoding
/// does not compare it.
MILLRACE_PRIVATE_API void write_raw_header(std::uint8_t* out, Size size, int channels, Depth depth,
                                           std::uint64_t pixel_sum);

/// Returns a raw image with the pixels of a view, as a file holds it.
MILLRACE_PRIVATE_API std::vector<std::uint8_t> to_raw(const ImageView& view);

/// Writes the checksum into a header that was changed; for tests.
MILLRACE_PRIVATE_API void seal_raw_header(std::span<std::uint8_t> bytes);

/// Returns the decoder that accepts raw images. It copies their pixels; DecodeScratch does not call
/// it if they can be read in place.
MILLRACE_PRIVATE_API const millrace_unit& raw_decoder();

}  // namespace millrace::pipeline
