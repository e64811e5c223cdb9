// Decodes PNG with libpng itself, which writes rows in place as they arrive and returns errors as
// text; OpenCV would print them to stderr. The transformations to 8 bits are those of OpenCV's
// imdecode, so levels are equal.
#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "plugins/imgcodecs/format.h"

namespace imgcodecs {
namespace {

struct Reading {
  const std::uint8_t* at;
  std::size_t left;
  millrace_call* call;
};

[[noreturn]] void on_error(png_structp png, png_const_charp text) {
  const millrace_call& call = *static_cast<Reading*>(png_get_error_ptr(png))->call;
  std::snprintf(call.error, call.error_size, "png: %s", text);
  png_longjmp(png, 1);
}

/// Ignores warnings: they concern colour profiles and text chunks, not pixels.
void on_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep out, png_size_t size) {
  Reading& reading = *static_cast<Reading*>(png_get_io_ptr(png));
  if (size > reading.left) png_error(png, "damaged or cut short");
  std::memcpy(out, reading.at, size);
  reading.at += size;
  reading.left -= size;
}

/// Reads the pixels. Returns false after an error, which leaves by longjmp: nothing here has a
/// destructor.
bool read_image(png_structp png, png_infop info, const millrace_decode& request,
                std::uint8_t* pixels, std::size_t row_bytes) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_read_info(png, info);
  const auto width = static_cast<std::size_t>(request.region.x1);
  const auto height = static_cast<std::size_t>(request.region.y1);
  if (png_get_image_width(png, info) != width || png_get_image_height(png, info) != height)
    png_error(png, "its header and its pixels disagree on the size");
  const int colour = png_get_color_type(png, info);
  const int depth = png_get_bit_depth(png, info);
  const bool keeps_depth = request.depth == MILLRACE_DEPTH_16;
  if (keeps_depth)
    png_set_swap(png);  // PNG is big-endian
  else if (depth == 16)
    png_set_strip_16(png);
  png_set_strip_alpha(png);
  if (colour == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if ((colour & PNG_COLOR_MASK_COLOR) == 0 && depth < 8) png_set_expand_gray_1_2_4_to_8(png);
  constexpr int kSilently = 1;
  if (request.channels == 1)
    png_set_rgb_to_gray(png, kSilently, 0.299, 0.587);
  else if ((colour & PNG_COLOR_MASK_COLOR) == 0)
    png_set_gray_to_rgb(png);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  if (png_get_rowbytes(png, info) != width * request.channels * (keeps_depth ? 2 : 1))
    png_error(png, "rows of an unexpected length");
  for (int pass = 0; pass < passes; ++pass)
    for (std::size_t y = 0; y < height; ++y) png_read_row(png, pixels + y * row_bytes, nullptr);
  png_read_end(png, nullptr);
  return true;
}

millrace_status decode(void*, const std::uint8_t* bytes, std::size_t size,
                       const millrace_decode* request, std::uint8_t* pixels, std::size_t row_bytes,
                       millrace_call* call) {
  Reading reading{bytes, size, call};
  std::snprintf(call->error, call->error_size, "png: out of memory");
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reading, on_error, on_warning);
  if (png == nullptr) return MILLRACE_BAD_DATA;
  png_infop info = png_create_info_struct(png);
  png_set_read_fn(png, &reading, read_bytes);
  const bool read = info != nullptr && read_image(png, info, *request, pixels, row_bytes);
  png_destroy_read_struct(&png, &info, nullptr);
  return read ? MILLRACE_OK : MILLRACE_BAD_DATA;
}

constexpr Format kPng{
    "png",
    "PNG; transparency is dropped, 16 bits become 8 unless decode.depth keeps them",
    [](const std::uint8_t* b, std::size_t n) -> int {
      return has(b, n, 0, "\x89PNG\r\n\x1a\n", 8);
    },
    png_header,
    open_nothing,
    close_nothing,
    decode};

}  // namespace

extern constinit const millrace_unit kPngUnit = unit_of<kPng>();

}  // namespace imgcodecs
