// PNG, TIFF and WebP files in many forms, written with libpng, libtiff and libwebp, for the tests
// and fuzzers of their decoders.
#pragma once

#include <png.h>
#include <tiffio.h>
#include <webp/encode.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"
#include "millrace/image.h"
#include "tests/data/png_file.h"
#include "tests/data/support.h"

namespace millrace::test {

/// A file, and which form it has.
struct Form {
  std::string name;
  Bytes file;
};

/// Returns `size` bytes: half of them a slope that codecs pack well, half noise.
inline Bytes grains(std::size_t size, std::uint32_t seed) {
  Draw draw(base::stream({9, 0, seed}, base::op_id("grains")));
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::uint8_t>(i % 64 < 32 ? i / 3 : draw.bits());
  return bytes;
}

inline Bytes png(Size size, const PngForm& form) {
  const auto height = static_cast<std::size_t>(size.height);
  return png_file(size, grains(png_row_bytes(size, form) * height, 2), form,
                  grains(std::size_t{3} << std::min(form.depth, 8), 1));
}

/// Returns every colour type with every depth, interlaced and not, with and without tRNS.
inline std::vector<Form> png_forms(Size size) {
  struct Kind {
    int colour;
    std::vector<int> depths;
    bool takes_transparency;
  };
  std::vector<Form> forms;
  for (const Kind& kind :
       {Kind{PNG_COLOR_TYPE_GRAY, {1, 2, 4, 8, 16}, true}, Kind{PNG_COLOR_TYPE_RGB, {8, 16}, true},
        Kind{PNG_COLOR_TYPE_PALETTE, {1, 2, 4, 8}, true},
        Kind{PNG_COLOR_TYPE_GRAY_ALPHA, {8, 16}, false},
        Kind{PNG_COLOR_TYPE_RGB_ALPHA, {8, 16}, false}})
    for (const int depth : kind.depths)
      for (const bool interlaced : {false, true})
        for (const bool transparent : {false, true}) {
          if (transparent && !kind.takes_transparency) continue;
          forms.push_back(
              {fmt::format("png colour {} depth {}{}{}", kind.colour, depth,
                           interlaced ? " interlaced" : "", transparent ? " transparent" : ""),
               png(size, {kind.colour, depth, interlaced, transparent})});
        }
  return forms;
}

struct TiffForm {
  int photometric = PHOTOMETRIC_MINISBLACK, bits = 8, samples = 1;
  int compression = COMPRESSION_NONE;
  int rows = 5;           ///< per strip
  int tile = 0;           ///< width and height of tiles, or 0 for strips
  bool separate = false;  ///< a plane per channel
  int alpha = -1;         ///< the last sample's EXTRASAMPLE
  int orientation = 1;
  bool big_endian = false;
  int predictor = 1;
};

inline std::string name_of(const TiffForm& form) {
  return fmt::format(
      "tiff photometric {} {}x{} bits compression {} {} {}{} alpha {} orientation {}{}{}",
      form.photometric, form.samples, form.bits, form.compression, form.tile > 0 ? "tile" : "rows",
      form.tile > 0 ? form.tile : form.rows, form.separate ? " separate" : "", form.alpha,
      form.orientation, form.big_endian ? " big-endian" : "",
      form.predictor > 1 ? " predictor" : "");
}

/// Writes rows or tiles of noise; returns false if libtiff cannot write the form.
inline bool write_tiff(TIFF* tiff, Size size, const TiffForm& form) {
  TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, size.width);
  TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, size.height);
  TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, form.bits);
  TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, form.samples);
  TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, form.photometric);
  TIFFSetField(tiff, TIFFTAG_ORIENTATION, form.orientation);
  TIFFSetField(tiff, TIFFTAG_PLANARCONFIG,
               form.separate ? PLANARCONFIG_SEPARATE : PLANARCONFIG_CONTIG);
  TIFFSetField(tiff, TIFFTAG_COMPRESSION, form.compression);
  if (form.predictor > 1) TIFFSetField(tiff, TIFFTAG_PREDICTOR, form.predictor);
  if (form.compression == COMPRESSION_JPEG && form.photometric == PHOTOMETRIC_YCBCR)
    TIFFSetField(tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
  if (form.alpha >= 0) {
    const auto extra = static_cast<std::uint16_t>(form.alpha);
    TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, 1, &extra);
  }
  if (form.photometric == PHOTOMETRIC_PALETTE) {
    std::vector<std::uint16_t> map(std::size_t{3} << form.bits);
    const Bytes colours = grains(map.size() * 2, 3);
    std::memcpy(map.data(), colours.data(), colours.size());
    const std::size_t one = map.size() / 3;
    TIFFSetField(tiff, TIFFTAG_COLORMAP, map.data(), map.data() + one, map.data() + 2 * one);
  }
  if (form.tile > 0) {
    TIFFSetField(tiff, TIFFTAG_TILEWIDTH, form.tile);
    TIFFSetField(tiff, TIFFTAG_TILELENGTH, form.tile);
    Bytes tile = grains(static_cast<std::size_t>(TIFFTileSize(tiff)), 4);
    for (std::uint32_t i = 0; i < TIFFNumberOfTiles(tiff); ++i, tile[0] ^= 0x5a)
      if (TIFFWriteEncodedTile(tiff, i, tile.data(), std::ssize(tile)) < 0) return false;
  } else {
    TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, form.rows);
    for (int plane = 0; plane < (form.separate ? form.samples : 1); ++plane)
      for (int y = 0; y < size.height; ++y) {
        Bytes row = grains(static_cast<std::size_t>(TIFFScanlineSize(tiff)),
                           static_cast<std::uint32_t>(100 * plane + y));
        if (TIFFWriteScanline(tiff, row.data(), static_cast<std::uint32_t>(y),
                              static_cast<std::uint16_t>(plane)) < 0)
          return false;
      }
  }
  return true;
}

/// A file that libtiff writes to memory.
struct MemoryFile {
  Bytes bytes;
  std::size_t at = 0;

  static MemoryFile& of(thandle_t handle) { return *static_cast<MemoryFile*>(handle); }
  static tmsize_t read(thandle_t handle, void* out, tmsize_t size) {
    MemoryFile& file = of(handle);
    const auto count = std::min(static_cast<std::size_t>(size), file.bytes.size() - file.at);
    std::memcpy(out, file.bytes.data() + file.at, count);
    file.at += count;
    return static_cast<tmsize_t>(count);
  }
  static tmsize_t write(thandle_t handle, void* from, tmsize_t size) {
    MemoryFile& file = of(handle);
    const auto count = static_cast<std::size_t>(size);
    file.bytes.resize(std::max(file.bytes.size(), file.at + count));
    std::memcpy(file.bytes.data() + file.at, from, count);
    file.at += count;
    return size;
  }
  static toff_t seek(thandle_t handle, toff_t offset, int from) {
    MemoryFile& file = of(handle);
    file.at = (from == SEEK_CUR ? file.at : from == SEEK_END ? file.bytes.size() : 0) + offset;
    if (file.at > file.bytes.size()) file.bytes.resize(file.at);
    return file.at;
  }
  static toff_t size(thandle_t handle) { return of(handle).bytes.size(); }
};

inline Bytes tiff(Size size, const TiffForm& form) {
  MemoryFile file;
  TIFF* tiff = TIFFClientOpen(
      "memory", form.big_endian ? "wb" : "wl", &file, MemoryFile::read, MemoryFile::write,
      MemoryFile::seek, [](thandle_t) { return 0; }, MemoryFile::size, nullptr, nullptr);
  const bool written = write_tiff(tiff, size, form);
  TIFFClose(tiff);
  EXPECT_TRUE(written) << name_of(form);
  return file.bytes;
}

/// Returns the colour models, depths, layouts, codecs and orientations that data sets contain.
inline std::vector<Form> tiff_forms(Size size) {
  std::vector<TiffForm> all;
  for (const int bits : {1, 2, 4, 8, 16})
    for (const int kind : {PHOTOMETRIC_MINISBLACK, PHOTOMETRIC_MINISWHITE, PHOTOMETRIC_PALETTE})
      if (kind != PHOTOMETRIC_PALETTE || bits <= 8) all.push_back({kind, bits});
  const std::vector<int> codecs{COMPRESSION_NONE,     COMPRESSION_LZW,  COMPRESSION_ADOBE_DEFLATE,
                                COMPRESSION_PACKBITS, COMPRESSION_LZMA, COMPRESSION_ZSTD};
  for (const int bits : {8, 16})
    for (const int codec : codecs)
      for (const bool separate : {false, true})
        for (const int tile : {0, 16}) {
          all.push_back({PHOTOMETRIC_RGB, bits, 3, codec, 7, tile, separate});
          all.push_back({PHOTOMETRIC_SEPARATED, 8, 4, codec, 7, tile, separate});
          all.push_back({PHOTOMETRIC_MINISBLACK, bits, 1, codec, 1, tile, separate, -1, 1, true});
          for (const int alpha :
               {EXTRASAMPLE_UNSPECIFIED, EXTRASAMPLE_ASSOCALPHA, EXTRASAMPLE_UNASSALPHA}) {
            all.push_back({PHOTOMETRIC_RGB, bits, 4, codec, 100, tile, separate, alpha});
            all.push_back({PHOTOMETRIC_MINISBLACK, bits, 2, codec, 3, tile, separate, alpha});
          }
        }
  for (const int codec : {COMPRESSION_LZW, COMPRESSION_ADOBE_DEFLATE})
    for (const int bits : {8, 16})
      all.push_back({PHOTOMETRIC_RGB, bits, 3, codec, 7, 0, false, -1, 1, bits == 16, 2});
  for (const int codec : {COMPRESSION_CCITTRLE, COMPRESSION_CCITTFAX3, COMPRESSION_CCITTFAX4})
    for (const int kind : {PHOTOMETRIC_MINISBLACK, PHOTOMETRIC_MINISWHITE})
      all.push_back({kind, 1, 1, codec, 9});
  for (const int tile : {0, 16}) {
    all.push_back({PHOTOMETRIC_YCBCR, 8, 3, COMPRESSION_JPEG, 16, tile});
    all.push_back({PHOTOMETRIC_RGB, 8, 3, COMPRESSION_JPEG, 16, tile});
    all.push_back({PHOTOMETRIC_MINISBLACK, 8, 1, COMPRESSION_JPEG, 8, tile});
    all.push_back({PHOTOMETRIC_CIELAB, 8, 3, COMPRESSION_NONE, 8, tile});
  }
  for (int orientation = 2; orientation <= 8; ++orientation)
    for (const int tile : {0, 16})
      all.push_back(
          {PHOTOMETRIC_RGB, 8, 3, COMPRESSION_LZW, 4, tile, false, -1, orientation, tile > 0});
  std::vector<Form> forms;
  for (const TiffForm& form : all) forms.push_back({name_of(form), tiff(size, form)});
  return forms;
}

/// Encodes noise with an alpha channel or without; quality 101 stands for lossless.
inline Bytes webp(Size size, int quality, bool alpha) {
  const int channels = alpha ? 4 : 3;
  const Bytes pixels = grains(static_cast<std::size_t>(size.width * size.height * channels), 5);
  const int row = size.width * channels;
  std::uint8_t* out = nullptr;
  const auto q = static_cast<float>(quality);
  const std::size_t bytes =
      quality > 100
          ? alpha ? WebPEncodeLosslessRGBA(pixels.data(), size.width, size.height, row, &out)
                  : WebPEncodeLosslessRGB(pixels.data(), size.width, size.height, row, &out)
      : alpha ? WebPEncodeRGBA(pixels.data(), size.width, size.height, row, q, &out)
              : WebPEncodeRGB(pixels.data(), size.width, size.height, row, q, &out);
  const Bytes file(out, out + bytes);
  WebPFree(out);
  return file;
}

inline std::vector<Form> webp_forms(Size size) {
  std::vector<Form> forms;
  for (const int quality : {0, 30, 75, 100, 101})
    for (const bool alpha : {false, true})
      forms.push_back({fmt::format("webp quality {}{}", quality, alpha ? " alpha" : ""),
                       webp(size, quality, alpha)});
  return forms;
}

}  // namespace millrace::test
