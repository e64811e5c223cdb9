#include "plugins/imgcodecs/headers.h"

#include <cstring>
#include <utility>

#include "plugins/exif.hpp"

namespace imgcodecs {
namespace {

constexpr const char* kTruncated = "truncated in its header";

std::uint32_t little16(const std::uint8_t* p) { return p[0] | std::uint32_t{p[1]} << 8; }
std::uint32_t little24(const std::uint8_t* p) { return little16(p) | std::uint32_t{p[2]} << 16; }
std::uint32_t little32(const std::uint8_t* p) { return little16(p) | little16(p + 2) << 16; }
std::uint32_t big16(const std::uint8_t* p) { return p[1] | std::uint32_t{p[0]} << 8; }
std::uint32_t big32(const std::uint8_t* p) { return big16(p + 2) | big16(p) << 16; }

bool is_at(const std::uint8_t* p, const char* tag) { return std::memcmp(p, tag, 4) == 0; }

/// Walks PNG's chunks to eXIf, which may stand before or behind the pixels.
std::uint32_t png_orientation(const std::uint8_t* bytes, std::size_t size) {
  constexpr std::size_t kStart = 8, kHead = 8, kTail = 4;
  for (std::size_t at = kStart; size - at >= kHead;) {
    const std::size_t length = big32(bytes + at);
    if (length > size - at - kHead) return 0;
    if (is_at(bytes + at + 4, "eXIf"))
      return millrace::exif_orientation(bytes + at + kHead, length);
    at += kHead + length;
    at += size - at < kTail ? size - at : kTail;
  }
  return 0;
}

/// Walks the chunks of an extended WebP file to EXIF, which stands behind the pixels.
std::uint32_t webp_orientation(const std::uint8_t* bytes, std::size_t size) {
  constexpr std::size_t kStart = 12, kHead = 8;
  for (std::size_t at = kStart; size - at >= kHead;) {
    const std::size_t length = little32(bytes + at + 4);
    if (length > size - at - kHead) return 0;
    const std::uint8_t* body = bytes + at + kHead;
    if (is_at(bytes + at, "EXIF")) {
      constexpr char kPrefix[] = "Exif\0";  // and a second 0: not allowed, but written by some
      const std::size_t skip =
          length >= sizeof kPrefix && std::memcmp(body, kPrefix, sizeof kPrefix) == 0
              ? sizeof kPrefix
              : 0;
      return millrace::exif_orientation(body + skip, length - skip);
    }
    at += kHead + length;
    at += length % 2 != 0 && at < size ? 1 : 0;  // chunks start at even places
  }
  return 0;
}

}  // namespace

const char* png_header(const std::uint8_t* bytes, std::size_t size, millrace_image_header& header) {
  if (size < 33) return kTruncated;
  if (!is_at(bytes + 12, "IHDR")) return "its first chunk is not IHDR";
  constexpr std::uint8_t kPalette = 1, kColour = 2;  // bits of the colour type
  header = {big32(bytes + 16), big32(bytes + 20), (bytes[25] & (kPalette | kColour)) ? 3u : 1u,
            png_orientation(bytes, size)};
  return nullptr;
}

const char* bmp_header(const std::uint8_t* bytes, std::size_t size, millrace_image_header& header) {
  if (size < 26) return kTruncated;
  if (constexpr std::uint32_t kOs2 = 12; little32(bytes + 14) == kOs2) {
    header = {little16(bytes + 18), little16(bytes + 20), 3};
    return nullptr;
  }
  // A negative height says that the rows run from the top.
  const std::uint32_t height = little32(bytes + 22);
  header = {little32(bytes + 18), height >> 31 ? 0u - height : height, 3};
  return nullptr;
}

const char* webp_header(const std::uint8_t* bytes, std::size_t size,
                        millrace_image_header& header) {
  if (size < 30) return kTruncated;
  const std::uint8_t* chunk = bytes + 12;
  const std::uint8_t* body = bytes + 20;
  if (is_at(chunk, "VP8 ")) {
    if (body[3] != 0x9d || body[4] != 0x01 || body[5] != 0x2a) return "its first frame is damaged";
    header = {little16(body + 6) & 0x3fff, little16(body + 8) & 0x3fff, 3};
  } else if (is_at(chunk, "VP8L")) {
    if (body[0] != 0x2f) return "its lossless stream is damaged";
    const std::uint32_t sides = little32(body + 1);
    header = {(sides & 0x3fff) + 1, (sides >> 14 & 0x3fff) + 1, 3};
  } else if (is_at(chunk, "VP8X")) {
    constexpr std::uint8_t kAnimated = 2, kExif = 8;
    if (body[0] & kAnimated) return "animated WebP is not supported";
    header = {little24(body + 4) + 1, little24(body + 7) + 1, 3,
              body[0] & kExif ? webp_orientation(bytes, size) : 0};
  } else {
    return "its first chunk is none of VP8, VP8L, VP8X";
  }
  return nullptr;
}

const char* tiff_header(const std::uint8_t* bytes, std::size_t size,
                        millrace_image_header& header) {
  if (size < 8) return kTruncated;
  const bool big = bytes[0] == 'M';
  const auto read16 = big ? big16 : little16;
  const auto read32 = big ? big32 : little32;
  const std::size_t directory = read32(bytes + 4);
  if (directory > size - 2) return kTruncated;

  header = {0, 0, 1};
  bool is_turned = false;
  const std::uint32_t entries = read16(bytes + directory);
  for (std::uint32_t i = 0; i < entries; ++i) {
    constexpr std::size_t kEntry = 12;
    const std::size_t at = directory + 2 + i * kEntry;
    if (at + kEntry > size) return kTruncated;
    constexpr std::uint32_t kShort = 3, kWidth = 256, kHeight = 257, kPhotometric = 262,
                            kOrientation = 274;
    const std::uint32_t tag = read16(bytes + at);
    const std::uint32_t value =
        read16(bytes + at + 2) == kShort ? read16(bytes + at + 8) : read32(bytes + at + 8);
    if (tag == kWidth) header.width = value;
    if (tag == kHeight) header.height = value;
    if (tag == kPhotometric) header.channels = value <= 1 ? 1 : 3;  // 0 and 1 are gray
    if (tag == kOrientation) is_turned = value >= 5 && value <= 8;
  }
  if (is_turned) std::swap(header.width, header.height);
  return header.width == 0 || header.height == 0 ? "it does not say its size" : nullptr;
}

}  // namespace imgcodecs
