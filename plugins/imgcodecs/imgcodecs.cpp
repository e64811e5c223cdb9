// A plugin that decodes PNG, WebP and TIFF with libpng, libwebp and libtiff, and BMP with OpenCV
// (unless it is built without). As a plugin it keeps these libraries out of a program that meets
// only JPEG.
#include <cstdio>
#include <cstring>
#include <iterator>

#include "millrace/millrace.hpp"
#include "plugins/imgcodecs/bmp.h"
#include "plugins/imgcodecs/formats.h"
#include "plugins/imgcodecs/headers.h"

namespace imgcodecs {
namespace {

/// One format: its first bytes, and its header parser.
struct Format {
  const char* name;
  const char* help;
  int (*sniff)(const std::uint8_t* bytes, std::size_t size);
  ReadHeader read_header;
  decltype(millrace_decoder::open) open;
  decltype(millrace_decoder::close) close;
  decltype(millrace_decoder::decode) decode;
};

bool has(const std::uint8_t* bytes, std::size_t size, std::size_t at, const char* text,
         std::size_t length) {
  return size >= at + length && std::memcmp(bytes + at, text, length) == 0;
}

/// Returns a dummy context for decoders that keep nothing from image to image: the host needs a
/// pointer that is not null.
void* open_nothing(const void*) {
  static char nothing;
  return &nothing;
}

void close_nothing(void*) {}

/// Reads a format's header and rejects sizes that the file's bytes cannot hold.
template <const Format& format>
millrace_status header(void*, const std::uint8_t* bytes, std::size_t size,
                       millrace_image_header* out, millrace_call* call) {
  Header header{};
  if (const char* reason = format.read_header(bytes, size, header)) {
    std::snprintf(call->error, call->error_size, "%s: %s", format.name, reason);
    return MILLRACE_BAD_DATA;
  }
  *out = header.image;
  const std::uint64_t pixels = std::uint64_t{out->width} * out->height;
  if (pixels <= header.most || (pixels - header.most) / header.max_per_byte <= size)
    return MILLRACE_OK;
  std::snprintf(call->error, call->error_size,
                "%s: %ux%u pixels in %zu bytes: it was cut short, or its header is damaged",
                format.name, out->width, out->height, size);
  return MILLRACE_BAD_DATA;
}

constexpr Format kPng{"png",
                      "PNG; transparency is dropped, 16 bits become 8",
                      [](const std::uint8_t* b, std::size_t n) -> int {
                        return has(b, n, 0, "\x89PNG\r\n\x1a\n", 8);
                      },
                      png_header,
                      open_nothing,
                      close_nothing,
                      decode_png};
#if MILLRACE_OPENCV
constexpr Format kBmp{"bmp",
                      "Windows bitmap",
                      [](const std::uint8_t* b, std::size_t n) -> int {
                        return n >= 18 && has(b, n, 0, "BM", 2) && b[15] == 0 && b[16] == 0;
                      },
                      bmp_header,
                      open_bmp,
                      close_nothing,
                      decode_bmp};
#endif
constexpr Format kWebp{"webp",
                       "WebP, lossy and lossless, no animation",
                       [](const std::uint8_t* b, std::size_t n) -> int {
                         return has(b, n, 0, "RIFF", 4) && has(b, n, 8, "WEBP", 4);
                       },
                       webp_header,
                       open_webp,
                       close_webp,
                       decode_webp};
constexpr Format kTiff{"tiff",
                       "TIFF, the first picture of the file",
                       [](const std::uint8_t* b, std::size_t n) -> int {
                         return has(b, n, 0, "II*\0", 4) || has(b, n, 0, "MM\0*", 4);
                       },
                       tiff_header,
                       open_tiff,
                       close_tiff,
                       decode_tiff};

template <const Format& format>
constexpr millrace_decoder kFunctions{
    sizeof(millrace_decoder), format.sniff, format.open,  format.close,
    header<format>,           nullptr,      format.decode};

template <const Format& format>
constexpr millrace_unit make_unit() {
  millrace_unit unit{};
  unit.struct_size = sizeof unit;
  unit.name = format.name;
  unit.help = format.help;
  unit.create = millrace::detail::create_nothing;
  unit.destroy = millrace::detail::destroy_nothing;
  unit.decoder = &kFunctions<format>;
  return unit;
}

template <const Format& format>
constexpr millrace_unit kUnit = make_unit<format>();

constexpr const millrace_unit* kUnits[] = {&kUnit<kPng>,
#if MILLRACE_OPENCV
                                           &kUnit<kBmp>,
#endif
                                           &kUnit<kWebp>, &kUnit<kTiff>};

}  // namespace
}  // namespace imgcodecs

extern "C" __attribute__((visibility("default")))
const millrace_plugin_table millrace_plugin = {MILLRACE_MAGIC,
                                               MILLRACE_ABI_MAJOR,
                                               MILLRACE_ABI_MINOR,
                                               sizeof(millrace_plugin_table),
                                               "imgcodecs",
                                               "0.3.0",
                                               "Apache-2.0",
                                               imgcodecs::kUnits,
                                               std::size(imgcodecs::kUnits)};
