// Chooses the decoder for some bytes, and decodes on one thread: header, limits, memory, pixels.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>
#include <optional>
#include <string_view>

#include "millrace/error.h"
#include "millrace/limits.h"
#include "pipeline/decoders/decoder.h"
#include "pipeline/decoders/image_files.h"
#include "pipeline/decoders/jpeg/jpeg.h"
#include "pipeline/decoders/npy_image.h"
#include "pipeline/decoders/raw_image.h"
#include "plugins/host/registry.h"

namespace millrace::pipeline {
namespace {

constexpr std::size_t kSniffed = 64;

bool takes(const millrace_unit& unit, std::span<const std::uint8_t> bytes) {
  return plugins::guarded_call(unit, [&] {
    return unit.decoder->sniff(bytes.data(), std::min(bytes.size(), kSniffed)) != 0;
  });
}

/// Describes bytes that no decoder accepts, for the message.
std::string describe(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return "an empty file";
  struct Known {
    std::string_view start;
    const char* what;
  };
  static constexpr std::array<Known, 9> kKnown{
      {{"GIF8", "a GIF image"},
       {"BM", "a BMP image, which needs a build with OpenCV"},
       {"\x1f\x8b", "gzip"},
       {"PK\x03\x04", "a zip archive"},
       {"%PDF", "a PDF document"},
       {"<svg", "an SVG drawing"},
       {"<!DOCTYPE", "a web page"},
       {"<html", "a web page"},
       {"version https://git-lfs", "a Git LFS pointer"}}};
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const Known& known : kKnown)
    if (text.starts_with(known.start)) return known.what;
  if (text.size() >= 12 && text.substr(4, 4) == "ftyp") return "HEIF, AVIF or a film";
  const auto head = bytes.first(std::min<std::size_t>(bytes.size(), 8));
  return fmt::format("{} bytes that start with {:02x}", bytes.size(), fmt::join(head, " "));
}

/// Bytes of a pixel that data.max_pixels allows for: three floats.
constexpr std::uint64_t kMaxPixelBytes = 3 * sizeof(float);

constexpr const char* kDamaged = "fetch or convert the image again, or set loader.on_error=skip";

/// Returns the pixels of an image that needs no decoding, or none.
std::optional<ImageView> stored_pixels(const millrace_unit& decoder,
                                       std::span<const std::uint8_t> bytes) {
  if (&decoder == &raw_decoder()) return parse_raw(bytes).view();
  if (&decoder == &npy_decoder()) return parse_npy(bytes);
  return std::nullopt;
}

Depth depth_of(const millrace_unit& unit, const millrace_image_header& header) {
  switch (header.depth) {
    case 0:
    case MILLRACE_DEPTH_8:
      return Depth::u8;
    case MILLRACE_DEPTH_16:
      return Depth::u16;
    case MILLRACE_DEPTH_FLOAT:
      return Depth::f32;
    default:
      throw DataError(fmt::format("{}: a header of {} bits", unit.name, header.depth),
                      "report it to the plugin's author: depths are 8, 16 and 32");
  }
}

int scaled(int side, int scale) { return (side + (1 << scale) - 1) >> scale; }

}  // namespace

const millrace_unit& decoder_of(std::span<const std::uint8_t> bytes) {
  for (const millrace_unit* unit : plugins::decoders())
    if (takes(*unit, bytes)) return *unit;
  const millrace_plugin_table& shipped = *plugins::shipped_decoders().table;
  for (const millrace_unit* unit : std::span(shipped.units, shipped.unit_count))
    if (takes(*unit, bytes)) return *unit;
  throw DataError(
      fmt::format("no decoder takes this image: it looks like {}", describe(bytes)),
      fmt::format("{} are known; convert it, or set loader.on_error=skip", image_format_names()));
}

/// The working memory of one decoder.
struct DecodeScratch::Context {
  const millrace_unit* decoder;
  void* memory;
};

DecodeScratch::DecodeScratch() = default;

DecodeScratch::~DecodeScratch() {
  for (const Context& context : contexts_)
    plugins::last_call(*context.decoder, "close()",
                       [&] { context.decoder->decoder->close(context.memory); });
}

void* DecodeScratch::context_of(const millrace_unit& decoder) {
  for (const Context& known : contexts_)
    if (known.decoder == &decoder) return known.memory;
  contexts_.reserve(contexts_.size() + 1);  // reserve first, so that nothing leaks if this throws
  void* memory = plugins::guarded_call(decoder, [&] { return decoder.decoder->open(nullptr); });
  if (memory == nullptr) throw std::bad_alloc();
  contexts_.push_back({&decoder, memory});
  if (&decoder == &jpeg_decoder()) pipeline::use_libjpeg(memory, only_libjpeg_);
  return memory;
}

void DecodeScratch::use_libjpeg(bool always) {
  only_libjpeg_ = always;
  for (const Context& known : contexts_)
    if (known.decoder == &jpeg_decoder()) pipeline::use_libjpeg(known.memory, always);
}

const EncodedImage& DecodeScratch::open(std::span<const std::uint8_t> bytes,
                                        std::uint64_t max_pixels) {
  const millrace_unit& unit = decoder_of(bytes);
  void* context = context_of(unit);
  millrace_image_header header{};
  plugins::checked_call(unit, call_.call, [&] {
    return unit.decoder->header(context, bytes.data(), bytes.size(), &header, &call_.call);
  });
  const std::uint64_t pixels = std::uint64_t{header.width} * header.height;
  if (pixels == 0)
    throw DataError(
        fmt::format("{}: {}x{} pixels is not an image", unit.name, header.width, header.height),
        kDamaged);
  if (pixels > max_pixels)
    throw DataError(fmt::format("{}: {}x{} is {} pixels, more than data.max_pixels={}", unit.name,
                                header.width, header.height, pixels, max_pixels),
                    "raise data.max_pixels if the set is meant to hold such images");
  if (std::max(header.width, header.height) > std::uint32_t{kMaxImageSide})
    throw DataError(fmt::format("{}: {}x{}: sides of more than {} pixels are not resampled",
                                unit.name, header.width, header.height, kMaxImageSide),
                    "cut it up or shrink it");
  bytes_ = bytes;
  image_ = {};
  image_.decoder = &unit;
  image_.stored = {static_cast<int>(header.width), static_cast<int>(header.height)};
  image_.orientation =
      header.orientation >= 1 && header.orientation <= 8 ? static_cast<int>(header.orientation) : 1;
  image_.size = oriented(image_.stored, orientation_of(image_.orientation));
  image_.channels = static_cast<int>(header.channels);
  image_.depth = depth_of(unit, header);
  image_.bands = header.bands > 0 ? static_cast<int>(header.bands) : image_.channels;
  max_bytes_ = max_pixels * kMaxPixelBytes;
  image_.scales = header.scales | 1;
  return image_;
}

ImageView DecodeScratch::decode(int channels, const Rect& wanted, int scale, Depth depth) {
  const millrace_unit& unit = *image_.decoder;
  if (depth != Depth::u8) require_form(channels, depth);
  const Depth own = depth == Depth::u8 ? Depth::u8 : image_.depth;
  if (own == image_.depth && channels == image_.bands)
    if (const auto pixels = stored_pixels(unit, bytes_)) return *pixels;
  void* context = context_of(unit);
  const Orientation orientation = orientation_of(image_.orientation);
  const Size stored{scaled(image_.stored.width, scale), scaled(image_.stored.height, scale)};
  const Rect asked = stored_rect(wanted, stored, orientation);
  millrace_decode request{sizeof request, static_cast<std::uint32_t>(channels),
                          static_cast<std::uint32_t>(scale), asked,
                          static_cast<std::uint32_t>(own)};
  Rect& rect = request.region;
  if (unit.decoder->region != nullptr)
    plugins::guarded_call(unit, [&] { unit.decoder->region(context, &request); });
  else
    rect = {0, 0, stored.width, stored.height};
  if (rect.x0 < 0 || rect.y0 < 0 || rect.x1 > stored.width || rect.y1 > stored.height ||
      rect.x0 > asked.x0 || rect.y0 > asked.y0 || rect.x1 < asked.x1 || rect.y1 < asked.y1)
    throw DataError(
        fmt::format("{}: asked for columns {} to {} and rows {} to {} of {}x{}, its region() gives "
                    "{} to {} and {} to {}",
                    unit.name, asked.x0, asked.x1, asked.y0, asked.y1, stored.width, stored.height,
                    rect.x0, rect.x1, rect.y0, rect.y1),
        "report it to the plugin's author: region() only ever widens, within the image");

  const auto width = static_cast<std::size_t>(rect.x1 - rect.x0);
  const auto height = static_cast<std::size_t>(rect.y1 - rect.y0);
  // Misaligns every row by 8 bytes. If a row starts at a multiple of 16 or 32, libjpeg-turbo writes
  // it with stores that bypass the caches, from which an augmentation is about to read.
  constexpr std::size_t kAlignment = 16, kOff = 8;
  const std::ptrdiff_t value = bytes_of(own), pixel = channels * value;
  const std::size_t row_bytes =
      (width * static_cast<std::size_t>(pixel) + kAlignment - 1) / kAlignment * kAlignment;
  std::uint8_t* out = pixels_.reserve(kOff + row_bytes * height) + kOff;
  plugins::checked_call(unit, call_.call, [&] {
    return unit.decoder->decode(context, bytes_.data(), bytes_.size(), &request, out, row_bytes,
                                &call_.call);
  });
  ImageView view{
      out,   stored.width, stored.height, channels, static_cast<std::ptrdiff_t>(row_bytes), pixel,
      value, own};
  view.data -= rect.y0 * view.row + rect.x0 * view.pixel;
  return oriented(view, orientation);
}

void DecodeScratch::require_form(int channels, Depth depth) const {
  if (image_.bands != channels)
    throw DataError(
        fmt::format("{}: {} channel{}, and the first image has {}", image_.decoder->name,
                    image_.bands, image_.bands == 1 ? "" : "s", channels),
        "convert it, set decode.depth=8, or set loader.on_error=skip");
  if (depth == Depth::u16 && image_.depth == Depth::f32)
    throw DataError(fmt::format("{}: its pixels are floats", image_.decoder->name),
                    "set decode.depth=float");
  const std::uint64_t bytes = static_cast<std::uint64_t>(image_.size.width) *
                              static_cast<std::uint64_t>(image_.size.height) *
                              static_cast<std::uint64_t>(channels * bytes_of(Depth::f32));
  if (bytes > max_bytes_)
    throw DataError(
        fmt::format("{}: {}x{} pixels of {} channels are {} bytes as floats, and data.max_pixels "
                    "allows {}",
                    image_.decoder->name, image_.size.width, image_.size.height, channels, bytes,
                    max_bytes_),
        "raise data.max_pixels if the set is meant to hold such images");
}

void DecodeScratch::trim(std::size_t most) {
  if (pixels_.capacity() > most) pixels_ = Buffer();
}

ImageView DecodeScratch::decode(std::span<const std::uint8_t> bytes, int channels,
                                std::uint64_t max_pixels) {
  const Size size = open(bytes, max_pixels).size;
  return decode(channels, {0, 0, size.width, size.height});
}

}  // namespace millrace::pipeline
