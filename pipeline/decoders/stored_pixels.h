// Decoders of files that hold pixels without compression: they copy, where DecodeScratch does not
// read the pixels in place.
#pragma once

#include <cstdint>
#include <cstdio>
#include <span>

#include "millrace/error.h"
#include "millrace/image.h"

namespace millrace::pipeline {

/// Returns the header of pixels in memory.
millrace_image_header header_of(const ImageView& image);

/// Writes the region of `image` that `request` names as a decoder does: values as they are stored
/// if their depth and number are asked for, otherwise 8 bits as gray or RGB. Throws DataError where
/// that cannot be.
void deliver(const ImageView& image, const millrace_decode& request, std::uint8_t* pixels,
             std::size_t row_bytes);

/// Calls `use` with the pixels. Returns what parsing or `use` throws as two lines.
template <ImageView (*parse)(std::span<const std::uint8_t>), class Use>
millrace_status with_pixels(const std::uint8_t* bytes, std::size_t size, millrace_call* call,
                            const Use& use) {
  try {
    use(parse({bytes, size}));
    return MILLRACE_OK;
  } catch (const DataError& error) {
    std::snprintf(call->error, call->error_size, "%s\n%s", error.what(), error.hint().c_str());
    return MILLRACE_BAD_DATA;
  }
}

/// The functions of a decoder: `is` looks at the first bytes; `parse` returns the file's pixels and
/// throws DataError.
template <bool (*is)(std::span<const std::uint8_t>),
          ImageView (*parse)(std::span<const std::uint8_t>)>
inline constexpr millrace_decoder kStoredPixels{
    sizeof(millrace_decoder),
    [](const std::uint8_t* bytes, std::size_t size) -> int {
      return is({bytes, size}) ? 1 : 0;
    },
    [](const void*) -> void* {
      static char nothing;  // null would mean that memory has run out
      return &nothing;
    },
    [](void*) {},
    [](void*, const std::uint8_t* bytes, std::size_t size, millrace_image_header* header,
       millrace_call* call) {
      return with_pixels<parse>(bytes, size, call,
                                [&](const ImageView& image) { *header = header_of(image); });
    },
    [](void*, millrace_decode*) {},  // exactly the region that was asked for
    [](void*, const std::uint8_t* bytes, std::size_t size, const millrace_decode* request,
       std::uint8_t* pixels, std::size_t row_bytes, millrace_call* call) {
      return with_pixels<parse>(bytes, size, call, [&](const ImageView& image) {
        deliver(image, *request, pixels, row_bytes);
      });
    }};

/// Returns the table of such a decoder. It is data, as a plugin's tables must be.
consteval millrace_unit stored_pixels_unit(const char* name, const char* help,
                                           const millrace_decoder& functions) {
  millrace_unit unit{};
  unit.struct_size = sizeof unit;
  unit.name = name;
  unit.help = help;
  unit.create = millrace::detail::create_nothing;
  unit.destroy = millrace::detail::destroy_nothing;
  unit.decoder = &functions;
  return unit;
}

}  // namespace millrace::pipeline
