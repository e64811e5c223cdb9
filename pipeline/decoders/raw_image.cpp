// Writes and parses raw images, and registers their decoder.
#include "pipeline/decoders/raw_image.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "millrace/error.h"
#include "millrace/limits.h"
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
  std::uint32_t reserved[3];
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
  if (header.version != RawImage::kVersion)
    raw_fails(fmt::format("version {}; this program reads version {}", header.version,
                          RawImage::kVersion));
  if (header.header_sum != raw_header_sum(header) || header.header_bytes != sizeof header)
    raw_fails("damaged: wrong checksum of its header");
  constexpr std::uint32_t kLongest = kMaxImageSide;
  if (header.width == 0 || header.height == 0 || header.width > kLongest ||
      header.height > kLongest || (header.channels != 1 && header.channels != 3))
    raw_fails(fmt::format("damaged: {}x{} pixels of {} channels", header.width, header.height,
                          header.channels));
  const std::uint64_t expected = std::uint64_t{header.width} * header.height * header.channels;
  if (bytes.size() - sizeof header != expected)
    raw_fails(fmt::format("{}: {} bytes of pixels where {}x{}x{} takes {}",
                          bytes.size() - sizeof header < expected ? "truncated" : "damaged",
                          bytes.size() - sizeof header, header.width, header.height,
                          header.channels, expected));
  return {{static_cast<int>(header.width), static_cast<int>(header.height)},
          static_cast<int>(header.channels),
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

void write_raw_header(std::uint8_t* out, Size size, int channels, std::uint64_t pixel_sum) {
  RawHeader header{};
  header.magic = kRawMagic;
  header.version = RawImage::kVersion;
  header.header_bytes = sizeof header;
  header.width = static_cast<std::uint32_t>(size.width);
  header.height = static_cast<std::uint32_t>(size.height);
  header.channels = static_cast<std::uint32_t>(channels);
  header.pixel_sum = pixel_sum;
  header.header_sum = raw_header_sum(header);
  std::memcpy(out, &header, sizeof header);
}

std::vector<std::uint8_t> to_raw(const ImageView& view) {
  const auto channels = static_cast<std::size_t>(view.channels);
  const std::size_t row = static_cast<std::size_t>(view.width) * channels;
  std::vector<std::uint8_t> out(RawImage::kHeaderBytes +
                                row * static_cast<std::size_t>(view.height));
  std::uint8_t* to = out.data() + RawImage::kHeaderBytes;
  for (int y = 0; y < view.height; ++y) {
    if (view.pixel == view.channels && (view.channel == 1 || channels == 1)) {
      std::memcpy(to, view.at(0, y), row);
      to += row;
      continue;
    }
    for (int x = 0; x < view.width; ++x)
      for (int c = 0; c < view.channels; ++c) *to++ = *view.at(x, y, c);
  }
  const auto pixels = std::span(out).subspan(RawImage::kHeaderBytes);
  write_raw_header(out.data(), view.size(), view.channels,
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

// The decoder: copies pixels, and converts between gray and colour.
namespace {

int sniff_raw(const std::uint8_t* bytes, std::size_t size) { return is_raw({bytes, size}) ? 1 : 0; }

void* open_raw(const void*) {
  static char nothing;  // null would mean that memory has run out
  return &nothing;
}

void close_raw(void*) {}

/// Calls `use` with the parsed image. Returns the error that parsing throws as two lines.
template <class Use>
millrace_status with_raw(const std::uint8_t* bytes, std::size_t size, millrace_call* call,
                         const Use& use) {
  try {
    use(parse_raw({bytes, size}));
    return MILLRACE_OK;
  } catch (const DataError& error) {
    std::snprintf(call->error, call->error_size, "%s\n%s", error.what(), error.hint().c_str());
    return MILLRACE_BAD_DATA;
  }
}

millrace_status header_of_raw(void*, const std::uint8_t* bytes, std::size_t size,
                              millrace_image_header* out, millrace_call* call) {
  return with_raw(bytes, size, call, [&](const RawImage& image) {
    *out = {static_cast<std::uint32_t>(image.size.width),
            static_cast<std::uint32_t>(image.size.height),
            static_cast<std::uint32_t>(image.channels), 1, 1};
  });
}

/// Decodes exactly the region that was asked for.
void region_of_raw(void*, millrace_decode*) {}

/// BT.601 luma with 16-bit weights, as Pillow's convert("L").
std::uint8_t luma(const std::uint8_t* rgb) {
  return static_cast<std::uint8_t>((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >>
                                   16);
}

millrace_status decode_raw(void*, const std::uint8_t* bytes, std::size_t size,
                           const millrace_decode* request, std::uint8_t* pixels,
                           std::size_t row_bytes, millrace_call* call) {
  return with_raw(bytes, size, call, [&](const RawImage& image) {
    const ImageView view = interleaved(image.pixels, image.size, image.channels);
    const int channels = static_cast<int>(request->channels);
    for (int y = request->region.y0; y < request->region.y1; ++y, pixels += row_bytes) {
      std::uint8_t* to = pixels;
      for (int x = request->region.x0; x < request->region.x1; ++x, to += channels) {
        const std::uint8_t* from = view.at(x, y);
        if (channels == image.channels)
          std::memcpy(to, from, static_cast<std::size_t>(channels));
        else if (channels == 1)
          *to = luma(from);
        else
          std::memset(to, *from, static_cast<std::size_t>(channels));
      }
    }
  });
}

constexpr millrace_decoder kRawFunctions{sizeof(millrace_decoder),
                                         sniff_raw,
                                         open_raw,
                                         close_raw,
                                         header_of_raw,
                                         region_of_raw,
                                         decode_raw};

constexpr millrace_unit raw_unit() {
  millrace_unit unit{};
  unit.struct_size = sizeof unit;
  unit.name = "pixels";
  unit.help = "raw pixels as `data pack --format raw` writes them; read in place";
  unit.create = detail::create_nothing;
  unit.destroy = detail::destroy_nothing;
  unit.decoder = &kRawFunctions;
  return unit;
}

constexpr millrace_unit kRaw = raw_unit();
constexpr const millrace_unit* kRawUnits[] = {&kRaw};

constexpr millrace_plugin_table kRawTable{
    MILLRACE_MAGIC, MILLRACE_ABI_MAJOR, MILLRACE_ABI_MINOR, sizeof(millrace_plugin_table), "pixels",
    "1.0",          "Apache-2.0",       kRawUnits,          std::size(kRawUnits)};

const plugins::BuiltIn kRawRegistered{kRawTable};

}  // namespace

const millrace_unit& raw_decoder() { return kRaw; }

}  // namespace millrace::pipeline
