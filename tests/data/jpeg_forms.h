// JPEG files in forms that tools/data/data.h does not write, for the decoders' tests.
#pragma once

#include <algorithm>
#include <cstdlib>

// clang-format off: jpeglib.h uses FILE and size_t without including them, so it comes later.
#include <jpeglib.h>
// clang-format on

#include "base/rng.h"
#include "millrace/image.h"
#include "tests/data/support.h"

namespace millrace::test {

/// Returns a smooth colour ramp, which JPEG keeps to within a few levels.
inline Bytes ramp(Size size) {
  Bytes pixels;
  for (int y = 0; y < size.height; ++y)
    for (int x = 0; x < size.width; ++x)
      for (const int value : {x * 200 / size.width, y * 200 / size.height, 90})
        pixels.push_back(static_cast<std::uint8_t>(value));
  return pixels;
}

/// Returns colours that change from pixel to pixel, so that a wrong neighbour shows.
inline Bytes noise(Size size) {
  Draw draw(base::stream({7, 0, 0}, base::op_id("noise")));
  Bytes pixels(static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height) * 3);
  for (std::uint8_t& pixel : pixels) pixel = static_cast<std::uint8_t>(draw.bits());
  return pixels;
}

/// Returns the pixels of `rect`, interleaved.
inline Bytes pixels_of(const ImageView& image, const Rect& rect) {
  Bytes pixels;
  for (int y = rect.y0; y < rect.y1; ++y)
    for (int x = rect.x0; x < rect.x1; ++x)
      for (int c = 0; c < image.channels; ++c) pixels.push_back(*image.at(x, y, c));
  return pixels;
}
inline Bytes pixels_of(const ImageView& image) {
  return pixels_of(image, {0, 0, image.width, image.height});
}

struct JpegForm {
  J_COLOR_SPACE stored = JCS_YCbCr;
  bool progressive = false;
  int restart = 0;   ///< rows of blocks between restart markers
  int h = 2, v = 2;  ///< luma samples per chroma sample, across and down
  bool arithmetic = false;
  int restart_blocks = 0;  ///< blocks between restart markers
  Bytes app1 = {};         ///< body of an APP1 segment
};

/// Encodes interleaved `rgb`. Gray takes the first channel, CMYK the last one twice.
inline Bytes jpeg(Size size, const JpegForm& form, const Bytes& rgb) {
  jpeg_compress_struct codec{};
  jpeg_error_mgr errors{};
  codec.err = jpeg_std_error(&errors);
  jpeg_create_compress(&codec);
  unsigned char* out = nullptr;
  unsigned long out_size = 0;
  jpeg_mem_dest(&codec, &out, &out_size);
  codec.image_width = static_cast<JDIMENSION>(size.width);
  codec.image_height = static_cast<JDIMENSION>(size.height);
  const bool gray = form.stored == JCS_GRAYSCALE;
  const bool cmyk = form.stored == JCS_CMYK || form.stored == JCS_YCCK;
  codec.input_components = gray ? 1 : cmyk ? 4 : 3;
  codec.in_color_space = gray ? JCS_GRAYSCALE : cmyk ? JCS_CMYK : JCS_RGB;
  jpeg_set_defaults(&codec);
  jpeg_set_colorspace(&codec, form.stored);
  jpeg_set_quality(&codec, 95, TRUE);
  codec.comp_info[0].h_samp_factor = form.h;
  codec.comp_info[0].v_samp_factor = form.v;
  if (cmyk) {
    codec.comp_info[3].h_samp_factor = form.h;
    codec.comp_info[3].v_samp_factor = form.v;
  }
  codec.arith_code = form.arithmetic ? TRUE : FALSE;
  codec.restart_in_rows = form.restart;
  codec.restart_interval = static_cast<unsigned>(form.restart_blocks);
  if (form.progressive) jpeg_simple_progression(&codec);
  jpeg_start_compress(&codec, TRUE);
  if (!form.app1.empty())
    jpeg_write_marker(&codec, JPEG_APP0 + 1, form.app1.data(),
                      static_cast<unsigned>(form.app1.size()));
  const auto width = static_cast<std::size_t>(size.width);
  const auto channels = static_cast<std::size_t>(codec.input_components);
  Bytes row(width * channels);
  while (codec.next_scanline < codec.image_height) {
    for (std::size_t x = 0; x < width; ++x)
      for (std::size_t c = 0; c < channels; ++c)
        row[x * channels + c] =
            rgb[(codec.next_scanline * width + x) * 3 + std::min(c, std::size_t{2})];
    JSAMPROW rows = row.data();
    jpeg_write_scanlines(&codec, &rows, 1);
  }
  jpeg_finish_compress(&codec);
  Bytes bytes(out, out + out_size);
  jpeg_destroy_compress(&codec);
  std::free(out);
  return bytes;
}

/// Returns EXIF's APP1 body with an orientation, after `before` other entries.
inline Bytes exif(int orientation, bool big_endian = false, int before = 0) {
  Bytes body;
  for (const char letter : {'E', 'x', 'i', 'f', '\0', '\0'})
    body.push_back(static_cast<std::uint8_t>(letter));
  const auto append = [&](std::uint32_t number, int bytes) {
    for (int i = 0; i < bytes; ++i) {
      const int shift = 8 * (big_endian ? bytes - 1 - i : i);
      body.push_back(static_cast<std::uint8_t>(number >> shift));
    }
  };
  append(big_endian ? 0x4d4d : 0x4949, 2);
  append(42, 2);
  append(8, 4);
  append(static_cast<std::uint32_t>(before + 1), 2);
  for (int i = 0; i <= before; ++i) {
    append(i == before ? 0x0112 : 0x0100 + static_cast<std::uint32_t>(i), 2);
    append(3, 2);  // SHORT
    append(1, 4);
    append(i == before ? static_cast<std::uint32_t>(orientation) : 99, 2);
    append(0, 2);
  }
  append(0, 4);  // no next directory
  return body;
}

/// Returns where pixel (x, y) of the upright image lies in the stored one, from EXIF's definition:
/// the sides on which row 0 and column 0 lie.
inline std::pair<int, int> stored_place(int orientation, Size stored, int x, int y) {
  const int right = stored.width - 1, bottom = stored.height - 1;
  switch (orientation) {
    case 1:  // row 0: top, column 0: left
      return {x, y};
    case 2:  // top, right
      return {right - x, y};
    case 3:  // bottom, right
      return {right - x, bottom - y};
    case 4:  // bottom, left
      return {x, bottom - y};
    case 5:  // left, top
      return {y, x};
    case 6:  // right, top
      return {y, bottom - x};
    case 7:  // right, bottom
      return {right - y, bottom - x};
    default:  // left, bottom
      return {right - y, x};
  }
}

}  // namespace millrace::test
