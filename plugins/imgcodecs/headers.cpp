// Parses the headers of PNG, BMP, WebP and TIFF.
#include "plugins/imgcodecs/headers.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "millrace/exif.hpp"

namespace imgcodecs {
namespace {

constexpr const char* kTruncated = "truncated in its header";
constexpr const char* kTooFew =
    "fewer bytes than its pixels take: cut short, or its header is damaged";

/// Largest output of deflate per byte of input.
constexpr std::uint64_t kDeflate = 1032;

/// Limits formats that can pack any plain picture into a few bytes: small pictures pass, larger
/// ones need as many bytes as deflate would.
void allow_plain(Header& header) {
  header.most = std::uint64_t{1} << 22;
  header.max_per_byte = kDeflate;
}

std::uint32_t little16(const std::uint8_t* p) { return p[0] | std::uint32_t{p[1]} << 8; }
std::uint32_t little24(const std::uint8_t* p) { return little16(p) | std::uint32_t{p[2]} << 16; }
std::uint32_t little32(const std::uint8_t* p) { return little16(p) | little16(p + 2) << 16; }
std::uint32_t big16(const std::uint8_t* p) { return p[1] | std::uint32_t{p[0]} << 8; }
std::uint32_t big32(const std::uint8_t* p) { return big16(p + 2) | big16(p) << 16; }

/// Tags of a TIFF directory that bound the picture's size or say its pixels' form.
struct TiffTags {
  std::optional<std::uint32_t> width, height, bits, compression, photometric, orientation, samples,
      tile_width, tile_height, extra, format;
  std::uint32_t extras = 0;  ///< number of samples of a pixel besides its colours

  std::optional<std::uint32_t>* find(std::uint32_t tag) {
    switch (tag) {
      case 256:
        return &width;
      case 257:
        return &height;
      case 258:
        return &bits;
      case 259:
        return &compression;
      case 262:
        return &photometric;
      case 274:
        return &orientation;
      case 277:
        return &samples;
      case 338:
        return &extra;
      case 339:
        return &format;
      case 322:
        return &tile_width;
      case 323:
        return &tile_height;
      default:
        return nullptr;
    }
  }

  /// Enters the depth and the channels that decode.depth keeps. Transparency is dropped.
  void describe(millrace_image_header& image) const {
    constexpr std::uint32_t kBlackIsZero = 1, kRgb = 2;
    constexpr std::uint32_t kUnsigned = 1, kFloat = 3;
    constexpr std::uint32_t kAlpha = 1, kUnassociatedAlpha = 2;
    if (photometric != kBlackIsZero && photometric != kRgb) return;
    const std::uint32_t depth = bits.value_or(1), number = format.value_or(kUnsigned);
    const bool known = number == kUnsigned ? depth == 8 || depth == 16
                                           : number == kFloat && depth == MILLRACE_DEPTH_FLOAT;
    if (!known) return;
    const bool has_alpha = extras == 1 && (extra == kAlpha || extra == kUnassociatedAlpha);
    image.depth = depth;
    image.bands = std::max(1u, samples.value_or(1)) - (has_alpha ? 1 : 0);
  }

  /// Computes the number of pixels that the file's bytes can hold. Returns null, or what is wrong.
  const char* bound(Header& header) const {
    const std::uint64_t pixels = std::uint64_t{*width} * *height;
    const std::uint64_t tile = std::uint64_t{tile_width.value_or(0)} * tile_height.value_or(0);
    if (tile > pixels + (1u << 22)) return "its tiles are larger than the picture";
    constexpr std::uint32_t kYCbCr = 6;  // its colours may be subsampled to almost nothing
    const std::uint64_t depth = std::max(1u, bits.value_or(1));
    const std::uint64_t a_pixel =
        photometric == kYCbCr ? depth : depth * std::max(1u, samples.value_or(1));
    constexpr std::uint64_t kLzw = 1400, kPackBits = 64;
    switch (compression.value_or(1)) {
      case 1:  // none
        header.max_per_byte = std::max<std::uint64_t>(1, 8 / a_pixel);
        break;
      case 2:  // fax: a row takes at least one bit
      case 3:
      case 4:
        header.max_per_byte = 8 * std::uint64_t{*width};
        break;
      case 5:
        header.max_per_byte = std::max<std::uint64_t>(1, kLzw * 8 / a_pixel);
        break;
      case 8:  // deflate, and its older number
      case 32946:
        header.max_per_byte = std::max<std::uint64_t>(1, kDeflate * 8 / a_pixel);
        break;
      case 32773:
        header.max_per_byte = std::max<std::uint64_t>(1, kPackBits * 8 / a_pixel);
        break;
      default:
        allow_plain(header);
    }
    return nullptr;
  }
};

bool is_at(const std::uint8_t* p, const char* tag) { return std::memcmp(p, tag, 4) == 0; }

/// Walks PNG's chunks to eXIf, which may lie before or behind the pixels.
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

/// Walks the chunks of an extended WebP file to EXIF, which lies behind the pixels.
std::uint32_t webp_orientation(const std::uint8_t* bytes, std::size_t size) {
  constexpr std::size_t kStart = 12, kHead = 8;
  for (std::size_t at = kStart; size - at >= kHead;) {
    const std::size_t length = little32(bytes + at + 4);
    if (length > size - at - kHead) return 0;
    const std::uint8_t* body = bytes + at + kHead;
    if (is_at(bytes + at, "EXIF")) {
      // A second zero is not allowed, but some programs write it.
      constexpr char kPrefix[] = "Exif\0";
      const std::size_t skip =
          length >= sizeof kPrefix && std::memcmp(body, kPrefix, sizeof kPrefix) == 0
              ? sizeof kPrefix
              : 0;
      return millrace::exif_orientation(body + skip, length - skip);
    }
    at += kHead + length;
    at += length % 2 != 0 && at < size ? 1 : 0;  // chunks start at even offsets
  }
  return 0;
}

}  // namespace

const char* png_header(const std::uint8_t* bytes, std::size_t size, Header& header) {
  if (size < 33) return kTruncated;
  if (!is_at(bytes + 12, "IHDR")) return "its first chunk is not IHDR";
  constexpr std::uint8_t kPalette = 1, kColour = 2, kAlpha = 4;  // bits of the colour type
  const std::uint8_t depth = bytes[24], type = bytes[25];
  header.image = {big32(bytes + 16), big32(bytes + 20), (type & (kPalette | kColour)) ? 3u : 1u,
                  png_orientation(bytes, size)};
  header.image.depth = depth == 16 ? MILLRACE_DEPTH_16 : MILLRACE_DEPTH_8;
  const unsigned samples =
      ((type & kColour) && !(type & kPalette) ? 3u : 1u) + ((type & kAlpha) ? 1u : 0u);
  header.max_per_byte = kDeflate * 8 / std::max(1u, depth * samples);
  return nullptr;
}

const char* bmp_header(const std::uint8_t* bytes, std::size_t size, Header& header) {
  if (size < 26) return kTruncated;
  constexpr std::uint32_t kOs2 = 12;
  std::uint64_t bits = 0;
  std::uint32_t compression = 0;
  if (little32(bytes + 14) == kOs2) {
    header.image = {little16(bytes + 18), little16(bytes + 20), 3};
    bits = little16(bytes + 24);
  } else {
    if (size < 34) return kTruncated;
    // A negative height means that rows run from the top.
    const std::uint32_t height = little32(bytes + 22);
    header.image = {little32(bytes + 18), height >> 31 ? 0u - height : height, 3};
    bits = little16(bytes + 28);
    compression = little32(bytes + 30);
  }
  constexpr std::uint32_t kRle8 = 1, kRle4 = 2;
  if (compression == kRle8 || compression == kRle4) {
    header.max_per_byte = 128;  // runs of 255 in two bytes
    return nullptr;
  }
  const std::uint64_t row = (header.image.width * bits + 31) / 32 * 4;
  if (row > 0 && header.image.height > size / row) return kTooFew;
  header.most = ~std::uint64_t{0};
  return nullptr;
}

const char* webp_header(const std::uint8_t* bytes, std::size_t size, Header& header) {
  if (size < 30) return kTruncated;
  const std::uint8_t* chunk = bytes + 12;
  const std::uint8_t* body = bytes + 20;
  if (is_at(chunk, "VP8 ")) {
    if (body[3] != 0x9d || body[4] != 0x01 || body[5] != 0x2a) return "its first frame is damaged";
    header.image = {little16(body + 6) & 0x3fff, little16(body + 8) & 0x3fff, 3};
    header.max_per_byte = 1024;  // the modes of a 16x16 block take more than 2 bits
  } else if (is_at(chunk, "VP8L")) {
    if (body[0] != 0x2f) return "its lossless stream is damaged";
    const std::uint32_t sides = little32(body + 1);
    header.image = {(sides & 0x3fff) + 1, (sides >> 14 & 0x3fff) + 1, 3};
    allow_plain(header);
  } else if (is_at(chunk, "VP8X")) {
    constexpr std::uint8_t kAnimated = 2, kExif = 8;
    if (body[0] & kAnimated) return "animated WebP is not supported";
    header.image = {little24(body + 4) + 1, little24(body + 7) + 1, 3,
                    body[0] & kExif ? webp_orientation(bytes, size) : 0};
    allow_plain(header);
  } else {
    return "its first chunk is none of VP8, VP8L, VP8X";
  }
  return nullptr;
}

const char* tiff_header(const std::uint8_t* bytes, std::size_t size, Header& header) {
  if (size < 8) return kTruncated;
  const bool big = bytes[0] == 'M';
  const auto read16 = big ? big16 : little16;
  const auto read32 = big ? big32 : little32;
  const std::size_t directory = read32(bytes + 4);
  if (directory > size - 2) return kTruncated;

  TiffTags tags;
  const std::uint32_t entries = read16(bytes + directory);
  for (std::uint32_t i = 0; i < entries; ++i) {
    constexpr std::size_t kEntry = 12;
    const std::size_t at = directory + 2 + i * kEntry;
    if (at + kEntry > size) return kTruncated;
    std::optional<std::uint32_t>* tag = tags.find(read16(bytes + at));
    if (tag == nullptr || tag->has_value()) continue;  // libtiff uses the first entry of a tag, too
    constexpr std::uint32_t kShort = 3, kLong = 4;
    const std::uint32_t type = read16(bytes + at + 2);
    if (type != kShort && type != kLong) return "a tag is of an unknown type";
    std::size_t value = at + 8;
    const std::uint32_t count = read32(bytes + at + 4);
    if (count > (type == kShort ? 2u : 1u)) {  // the values are stored elsewhere; use the first one
      value = read32(bytes + value);
      if (size < 4 || value > size - 4) return kTruncated;
    }
    *tag = type == kShort ? read16(bytes + value) : read32(bytes + value);
    if (tag == &tags.extra) tags.extras = count;
  }
  if (tags.width.value_or(0) == 0 || tags.height.value_or(0) == 0)
    return "it does not say its size";
  header.image = {*tags.width, *tags.height, tags.photometric.value_or(2) <= 1 ? 1u : 3u};
  const std::uint32_t orientation = tags.orientation.value_or(0);
  header.image.orientation = orientation <= 8 ? orientation : 0;
  tags.describe(header.image);
  return tags.bound(header);
}

}  // namespace imgcodecs
