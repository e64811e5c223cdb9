// PNG files of masks, written with libpng.
#pragma once

#include <png.h>

#include <cstdint>
#include <span>
#include <vector>

#include "millrace/image.h"
#include "tests/data/support.h"

namespace millrace::test {

struct LabelForm {
  int colour = PNG_COLOR_TYPE_GRAY;
  int depth = 8;
  int filters = PNG_ALL_FILTERS;
  bool interlaced = false;
};

/// Returns a PNG of rows of packed pixels, without gaps.
inline Bytes label_png(Size size, std::span<const std::uint8_t> rows, const LabelForm& form = {}) {
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
  png_set_filter(png, PNG_FILTER_TYPE_BASE, form.filters);
  png_set_compression_buffer_size(png, 300);  // several chunks
  const std::vector<png_color> palette(std::size_t{1} << std::min(form.depth, 8), {1, 2, 3});
  if (form.colour == PNG_COLOR_TYPE_PALETTE)
    png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  png_write_info(png, info);
  const std::size_t row = png_get_rowbytes(png, info);
  std::vector<png_bytep> starts;
  for (std::size_t y = 0; y < static_cast<std::size_t>(size.height); ++y)
    starts.push_back(const_cast<png_bytep>(rows.data() + y * row));
  png_write_image(png, starts.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return file;
}

}  // namespace millrace::test
