// PNG files of given rows in many forms, written with libpng.
#pragma once

#include <png.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "millrace/image.h"
#include "tests/data/support.h"

namespace millrace::test {

struct PngForm {
  int colour = PNG_COLOR_TYPE_GRAY;
  int depth = 8;
  bool interlaced = false, transparent = false;
  int filters = PNG_NO_FILTERS;  ///< of PNG_FILTER_*; none: those that libpng prefers
};

/// Returns the size of a packed row in bytes.
inline std::size_t png_row_bytes(Size size, const PngForm& form) {
  const int channels = form.colour == PNG_COLOR_TYPE_RGB          ? 3
                       : form.colour == PNG_COLOR_TYPE_RGB_ALPHA  ? 4
                       : form.colour == PNG_COLOR_TYPE_GRAY_ALPHA ? 2
                                                                  : 1;
  return (static_cast<std::size_t>(size.width * channels * form.depth) + 7) / 8;
}

/// Returns a PNG of packed rows without gaps. `colours` are the bytes of the palette, if it has
/// one.
inline Bytes png_file(Size size, std::span<const std::uint8_t> rows, const PngForm& form,
                      const Bytes& colours, std::size_t chunk = 0) {
  Bytes file;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  const auto append = [](png_structp to, png_bytep bytes, png_size_t count) {
    auto& all = *static_cast<Bytes*>(png_get_io_ptr(to));
    all.insert(all.end(), bytes, bytes + count);
  };
  png_set_write_fn(png, &file, append, nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(size.width),
               static_cast<png_uint_32>(size.height), form.depth, form.colour,
               form.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (form.filters != PNG_NO_FILTERS) png_set_filter(png, PNG_FILTER_TYPE_BASE, form.filters);
  if (chunk > 0) png_set_compression_buffer_size(png, chunk);
  if (form.colour == PNG_COLOR_TYPE_PALETTE) {
    std::vector<png_color> palette;
    for (std::size_t i = 0; i + 2 < colours.size(); i += 3)
      palette.push_back({colours[i], colours[i + 1], colours[i + 2]});
    png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  }
  png_color_16 colour{1, 20, 30, 40, 1};
  Bytes alpha{0, 128};
  if (form.transparent)
    png_set_tRNS(png, info, alpha.data(), static_cast<int>(alpha.size()),
                 form.colour == PNG_COLOR_TYPE_PALETTE ? nullptr : &colour);
  png_write_info(png, info);
  const std::size_t row = png_row_bytes(size, form);
  std::vector<png_bytep> starts;
  for (std::size_t y = 0; y < static_cast<std::size_t>(size.height); ++y)
    starts.push_back(const_cast<png_bytep>(rows.data() + y * row));
  png_write_image(png, starts.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return file;
}

/// Returns a mask's PNG, in several chunks.
inline Bytes label_png(Size size, std::span<const std::uint8_t> rows,
                       const PngForm& form = {.filters = PNG_ALL_FILTERS}) {
  return png_file(size, rows, form, Bytes(std::size_t{3} << std::min(form.depth, 8), 1), 300);
}

}  // namespace millrace::test
