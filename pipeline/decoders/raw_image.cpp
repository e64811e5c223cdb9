// Writes and parses raw images, and registers their decoder.
#include "pipeline/decoders/raw_image.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <iterator>

#include "millrace/error.h"
#include "millrace/limits.h"
#include "pipeline/decoders/stored_pixels.h"
#include "plugins/host/registry.h"

namespace millrace::pipeline {

// Defines the layout. Numbers are little-endian.
namespace {

static_assert(std::endian::native == std::endian::little, "raw images are little-endian");

constexpr std::array<std::uint8_t, 8> kRawMagic{0x89, 'M', 'R', 'P', 'I', 'X', '\r', '\n'};

struct RawHeader {
  std::array<std::uint8_t, 8> magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint32_t width;
  std::uint32_t height;
  std::uint32_t channels;
  std::uint32_t depth;  ///< 0: 8 bits, 16, or 32: floats
  std::uint32_t reserved[2];
  std::uint64_t more_reserved;
  std::uint64_t pixel_sum;   ///< XXH3 of the pixels
  std::uint64_t header_sum;  ///< XXH3 of the header up to here
};
static_assert(sizeof(RawHeader) == RawImage::kHeaderBytes);

std::uint64_t raw_header_sum(const RawHeader& header) {
  return XXH3_64bits(&header, offsetof(RawHeader, header_sum));
}

[[noreturn]] void raw_fails(const std::string& reason) {
  throw DataError("raw image: " + reason, "pack the set again: millrace data pack --format raw");
}

}  // namespace

bool is_raw(std::span<const std::uint8_t> bytes) {
  return bytes.size() >= kRawMagic.size() &&
         std::memcmp(bytes.data(), kRawMagic.data(), kRawMagic.size()) == 0;
}

RawImage parse_raw(std::span<const std::uint8_t> bytes) {
  if (!is_raw(bytes)) raw_fails("it does not begin like one");
  RawHeader header;
  if (bytes.size() < sizeof header) raw_fails(fmt::format("truncated: {} bytes", bytes.size()));
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.version != RawImage::kVersion && header.version != RawImage::kDeepVersion)
    raw_fails(fmt::format("version {}; this program reads versions {} and {}", header.version,
                          RawImage::kVersion, RawImage::kDeepVersion));
  if (header.header_sum != raw_header_sum(header) || header.header_bytes != sizeof header)
    raw_fails("damaged: wrong checksum of its header");
  constexpr std::uint32_t kLongest = kMaxImageSide;
  const bool deep = header.version == RawImage::kDeepVersion;
  const bool channels_fit = deep ? header.channels >= 1 && header.channels <= kMaxChannels
                                 : header.channels == 1 || header.channels == 3;
  if (header.width == 0 || header.height == 0 || header.width > kLongest ||
      header.height > kLongest || !channels_fit)
    raw_fails(fmt::format("damaged: {}x{} pixels of {} channels", header.width, header.height,
                          header.channels));
  Depth depth = Depth::u8;
  if (deep && header.depth != 0) {
    depth = static_cast<Depth>(header.depth);
    if (header.depth != MILLRACE_DEPTH_16 && header.depth != MILLRACE_DEPTH_FLOAT)
      raw_fails(fmt::format("damaged: values of {} bits", header.depth));
  }
  const std::uint64_t expected = std::uint64_t{header.width} * header.height * header.channels *
                                 static_cast<std::uint64_t>(bytes_of(depth));
  if (bytes.size() - sizeof header != expected)
    raw_fails(fmt::format("{}: {} bytes of pixels where {}x{}x{} takes {}",
                          bytes.size() - sizeof header < expected ? "truncated" : "damaged",
                          bytes.size() - sizeof header, header.width, header.height,
                          header.channels, expected));
  return {{static_cast<int>(header.width), static_cast<int>(header.height)},
          static_cast<int>(header.channels),
          depth,
          bytes.data() + sizeof header};
}

void check_raw_pixels(std::span<const std::uint8_t> bytes) {
  parse_raw(bytes);
  RawHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto pixels = bytes.subspan(sizeof header);
  if (XXH3_64bits(pixels.data(), pixels.size()) != header.pixel_sum)
    raw_fails("damaged: wrong checksum of its pixels");
}

void write_raw_header(std::uint8_t* out, Size size, int channels, Depth depth,
                      std::uint64_t pixel_sum) {
  RawHeader header{};
  header.magic = kRawMagic;
  const bool deep = depth != Depth::u8 || (channels != 1 && channels != 3);
  header.version = deep ? RawImage::kDeepVersion : RawImage::kVersion;
  header.depth = depth == Depth::u8 ? 0 : static_cast<std::uint32_t>(depth);
  header.header_bytes = sizeof header;
  header.width = static_cast<std::uint32_t>(size.width);
  header.height = static_cast<std::uint32_t>(size.height);
  header.channels = static_cast<std::uint32_t>(channels);
  header.pixel_sum = pixel_sum;
  header.header_sum = raw_header_sum(header);
  std::memcpy(out, &header, sizeof header);
}

std::vector<std::uint8_t> to_raw(const ImageView& view) {
  const auto value = static_cast<std::size_t>(bytes_of(view.depth));
  const std::size_t pixel = static_cast<std::size_t>(view.channels) * value;
  const std::size_t row = static_cast<std::size_t>(view.width) * pixel;
  std::vector<std::uint8_t> out(RawImage::kHeaderBytes +
                                row * static_cast<std::size_t>(view.height));
  std::uint8_t* const to = out.data() + RawImage::kHeaderBytes;
  const auto channels = static_cast<std::uint32_t>(view.channels);
  deliver(view,
          {sizeof(millrace_decode),
           channels,
           0,
           {0, 0, view.width, view.height},
           static_cast<std::uint32_t>(view.depth)},
          to, row);
  const auto pixels = std::span(out).subspan(RawImage::kHeaderBytes);
  write_raw_header(out.data(), view.size(), view.channels, view.depth,
                   XXH3_64bits(pixels.data(), pixels.size()));
  return out;
}

void seal_raw_header(std::span<std::uint8_t> bytes) {
  RawHeader header;
  if (bytes.size() < sizeof header) return;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.header_sum = raw_header_sum(header);
  std::memcpy(bytes.data(), &header, sizeof header);
}

// The decoder.
namespace {

ImageView view_of_raw(std::span<const std::uint8_t> bytes) { return parse_raw(bytes).view(); }

constexpr millrace_unit kRaw = stored_pixels_unit(
    "pixels", "raw pixels as `data pack --format raw` writes them; read in place",
    kStoredPixels<is_raw, view_of_raw>);
constexpr const millrace_unit* kRawUnits[] = {&kRaw};

constexpr millrace_plugin_table kRawTable{
    MILLRACE_MAGIC, MILLRACE_ABI_MAJOR, MILLRACE_ABI_MINOR, sizeof(millrace_plugin_table), "pixels",
    "1.0",          "Apache-2.0",       kRawUnits,          std::size(kRawUnits)};

const plugins::BuiltIn kRawRegistered{kRawTable};

}  // namespace

const millrace_unit& raw_decoder() { return kRaw; }

}  // namespace millrace::pipeline
