// Inflates a PNG's rows and undoes their filters (PNG specification, third edition, sections 5, 9
// and 10).
#include "pipeline/decoders/label_png.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "millrace/error.h"
#include "millrace/limits.h"

namespace millrace::pipeline {
namespace {

constexpr const char* kRemedy =
    "a mask is an 8-bit gray or palette PNG whose pixels are class ids, 255 for none";

std::uint32_t big32(const std::uint8_t* p) {
  return std::uint32_t{p[0]} << 24 | std::uint32_t{p[1]} << 16 | std::uint32_t{p[2]} << 8 | p[3];
}

constexpr std::uint32_t name_of(const char (&name)[5]) {
  std::uint32_t number = 0;
  for (int i = 0; i < 4; ++i) number = number << 8 | static_cast<std::uint8_t>(name[i]);
  return number;
}

const char* colours_of(int type) {
  constexpr const char* kTypes[] = {"gray",           "", "RGB",          "palette",
                                    "gray and alpha", "", "RGB and alpha"};
  return type < 7 ? kTypes[type] : "";
}

[[noreturn]] void refuse(const std::string& what) {
  throw DataError("its mask " + what, "write it again, or leave the sample out");
}

/// The predictor of filter 4.
std::uint8_t paeth(int left, int above, int corner) {
  const int to_left = std::abs(above - corner), to_above = std::abs(left - corner);
  const int to_corner = std::abs(left + above - 2 * corner);
  if (to_left <= to_above && to_left <= to_corner) return static_cast<std::uint8_t>(left);
  return static_cast<std::uint8_t>(to_above <= to_corner ? above : corner);
}

/// Undoes the filter of a row of `count` bytes. `above` is the row before it, or zeros.
void unfilter(int filter, const std::uint8_t* above, std::uint8_t* row, std::size_t count) {
  const auto add = [row](std::size_t i, int level) {
    row[i] = static_cast<std::uint8_t>(row[i] + level);
  };
  switch (filter) {
    case 0:
      return;
    case 1:
      for (std::size_t i = 1; i < count; ++i) add(i, row[i - 1]);
      return;
    case 2:
      for (std::size_t i = 0; i < count; ++i) add(i, above[i]);
      return;
    case 3:
      add(0, above[0] / 2);
      for (std::size_t i = 1; i < count; ++i) add(i, (row[i - 1] + above[i]) / 2);
      return;
    case 4:
      add(0, above[0]);
      for (std::size_t i = 1; i < count; ++i) add(i, paeth(row[i - 1], above[i], above[i - 1]));
      return;
    default:
      refuse(fmt::format("is damaged: there is no filter {}", filter));
  }
}

}  // namespace

struct LabelPng::Chunk {
  std::uint32_t name;
  std::span<const std::uint8_t> bytes;
};

void LabelPng::End::operator()(z_stream_s* stream) const {
  inflateEnd(stream);
  delete stream;
}

LabelPng::LabelPng() : stream_(new z_stream_s{}) {
  if (inflateInit(stream_.get()) != Z_OK) throw std::bad_alloc();
}
LabelPng::~LabelPng() = default;

/// Returns the next chunk, whose checksum is right.
LabelPng::Chunk LabelPng::next_chunk() {
  constexpr std::size_t kAround = 12;  // length, name and checksum
  if (rest_.size() < kAround) refuse("is cut short");
  const std::size_t size = big32(rest_.data());
  if (size > rest_.size() - kAround) refuse("is cut short");
  const std::span<const std::uint8_t> named = rest_.subspan(4, 4 + size);
  if (crc32(0, named.data(), static_cast<uInt>(named.size())) != big32(rest_.data() + 8 + size))
    refuse("is damaged: the checksum of a chunk is wrong");
  rest_ = rest_.subspan(kAround + size);
  return {big32(named.data()), named.subspan(4)};
}

void LabelPng::open(std::span<const std::uint8_t> bytes, std::uint64_t max_pixels) {
  constexpr std::uint8_t kSignature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  constexpr std::size_t kHeader = 13;
  if (bytes.size() < sizeof kSignature ||
      std::memcmp(bytes.data(), kSignature, sizeof kSignature) != 0)
    throw DataError("its mask is no PNG file", kRemedy);
  rest_ = bytes.subspan(sizeof kSignature);
  const auto [name, header] = next_chunk();
  if (name != name_of("IHDR") || header.size() != kHeader) refuse("has no header");
  const std::uint32_t width = big32(header.data()), height = big32(header.data() + 4);
  if (width == 0 || height == 0 || width > kMaxImageSide || height > kMaxImageSide ||
      std::uint64_t{width} * height > max_pixels)
    throw DataError(fmt::format("its mask claims {}x{} pixels", width, height),
                    fmt::format("data.max_pixels={} is the limit, and {} for a side", max_pixels,
                                kMaxImageSide));
  const int depth = header[8], type = header[9];
  const bool packed = depth == 1 || depth == 2 || depth == 4;
  constexpr int kGray = 0, kPalette = 3;
  if (!(type == kGray && depth == 8) && !(type == kPalette && (packed || depth == 8)))
    throw DataError(fmt::format("its mask is a PNG of {}-bit {}", depth, colours_of(type)),
                    kRemedy);
  if (header[10] != 0 || header[11] != 0 || header[12] != 0)
    throw DataError("its mask is an interlaced PNG, or of an unknown kind",
                    "save it without interlacing");
  size_ = {static_cast<int>(width), static_cast<int>(height)};
  depth_ = depth;
  header_end_ = rest_;
}

void LabelPng::require_size(Size image) const {
  if (size_ == image) return;
  throw DataError(fmt::format("its mask has {}x{} pixels, and the image {}x{}", size_.width,
                              size_.height, image.width, image.height),
                  "draw it for the image as it is, turned as its EXIF orientation says");
}

/// Inflates the first `bytes` bytes of all rows.
void LabelPng::inflate_rows(std::size_t bytes) {
  z_stream& stream = *stream_;
  inflateReset(&stream);
  stream.next_out = rows_.reserve(bytes);
  stream.avail_out = static_cast<uInt>(bytes);
  stream.avail_in = 0;
  for (rest_ = header_end_; stream.avail_out > 0;) {
    const Chunk chunk = next_chunk();
    if (chunk.name == name_of("IEND")) refuse("is cut short");
    if (chunk.name != name_of("IDAT")) continue;
    stream.next_in = const_cast<Bytef*>(chunk.bytes.data());  // zlib only reads it
    stream.avail_in = static_cast<uInt>(chunk.bytes.size());
    while (stream.avail_in > 0 && stream.avail_out > 0) {
      const int status = inflate(&stream, Z_NO_FLUSH);
      if (status == Z_MEM_ERROR) throw std::bad_alloc();
      if (status == Z_STREAM_END && stream.avail_out > 0) refuse("has too few pixels");
      if (status != Z_OK && status != Z_STREAM_END) refuse("is damaged: it cannot be inflated");
    }
  }
}

ImageView LabelPng::pixels(const Rect& region, int /*scale*/) {
  const auto width = static_cast<std::size_t>(size_.width);
  const auto count = static_cast<std::size_t>(region.y1);
  const std::size_t packed = (width * static_cast<std::size_t>(depth_) + 7) / 8;
  const std::size_t row = 1 + packed;
  inflate_rows(count * row);
  std::uint8_t* const first = rows_.data() + 1;
  for (std::size_t y = 0; y < count; ++y) {
    std::uint8_t* const levels = first + y * row;
    const int filter = levels[-1];
    if (y > 0) {
      unfilter(filter, levels - row, levels, packed);
    } else if (filter > 0) {
      std::uint8_t* const zeros = pixels_.reserve(packed);
      std::fill_n(zeros, packed, std::uint8_t{0});
      unfilter(filter, zeros, levels, packed);
    }
  }
  if (depth_ == 8)
    return {first, size_.width, size_.height, 1, static_cast<std::ptrdiff_t>(row), 1, 1};
  const auto depth = static_cast<std::size_t>(depth_), most = (std::size_t{1} << depth) - 1;
  std::uint8_t* out = pixels_.reserve(width * count);
  for (std::size_t y = 0; y < count; ++y)
    for (std::size_t x = 0; x < width; ++x) {
      const std::size_t bit = x * depth;
      *out++ = static_cast<std::uint8_t>(first[y * row + bit / 8] >> (8 - depth - bit % 8) & most);
    }
  return interleaved(pixels_.data(), size_, 1);
}

void LabelPng::trim(std::size_t most) {
  for (Buffer* buffer : {&rows_, &pixels_})
    if (buffer->capacity() > most) *buffer = Buffer();
}

}  // namespace millrace::pipeline
