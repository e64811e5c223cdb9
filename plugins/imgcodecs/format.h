// One format of the plugin: its first bytes, its header and its pixels, and the unit that they
// make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "millrace/millrace.hpp"
#include "plugins/imgcodecs/headers.h"

namespace imgcodecs {

/// The functions are millrace_decoder's of these names.
struct Format {
  const char* name;
  const char* help;
  int (*sniff)(const std::uint8_t* bytes, std::size_t size);
  ReadHeader read_header;
  decltype(millrace_decoder::open) open;
  decltype(millrace_decoder::close) close;
  decltype(millrace_decoder::decode) decode;
};

/// Returns whether `text` stands at byte `at`.
inline bool has(const std::uint8_t* bytes, std::size_t size, std::size_t at, const char* text,
                std::size_t length) {
  return size >= at + length && std::memcmp(bytes + at, text, length) == 0;
}

/// Returns a context for decoders that keep nothing from image to image: the host needs a
/// pointer that is not null.
inline void* open_nothing(const void*) {
  static char nothing;
  return &nothing;
}

inline void close_nothing(void*) {}

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

template <const Format& format>
inline constexpr millrace_decoder kFunctions{
    sizeof(millrace_decoder), format.sniff, format.open,  format.close,
    header<format>,           nullptr,      format.decode};

/// Returns the table of a format's decoder. It is data, as a plugin's tables must be.
template <const Format& format>
consteval millrace_unit unit_of() {
  millrace_unit unit{};
  unit.struct_size = sizeof unit;
  unit.name = format.name;
  unit.help = format.help;
  unit.create = millrace::detail::create_nothing;
  unit.destroy = millrace::detail::destroy_nothing;
  unit.decoder = &kFunctions<format>;
  return unit;
}

}  // namespace imgcodecs
