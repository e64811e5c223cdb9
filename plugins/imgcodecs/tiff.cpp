// Decodes the first picture of a TIFF, a strip or tile at a time, as it is stored: the host turns
// it. 8 bits come from libtiff's conversion to RGBA, and equal those of OpenCV's imdecode, which
// uses the same conversion; other depths and numbers of channels are the values in the file. Unlike
// OpenCV's, a damaged strip or tile is an error.
#include <tiffio.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <utility>

#include "millrace/buffer.h"
#include "plugins/imgcodecs/format.h"
#include "plugins/imgcodecs/gray.h"

namespace imgcodecs {
namespace {

/// Working memory above this size is returned to the system after each image.
constexpr std::size_t kKeep = std::size_t{16} << 20;
/// Largest allocation that libtiff may make: its tables, and the pixels with up to eight samples of
/// 16 bits, padded to whole tiles.
constexpr std::size_t kTables = std::size_t{64} << 20, kMaxBytesPerPixel = 16;
/// A file in memory, as libtiff reads it, and where its first error goes.
struct Reading {
  const std::uint8_t* bytes;
  std::size_t size;
  std::size_t at = 0;
  millrace_call* call = nullptr;
  bool failed = false;
};

Reading& reading_of(thandle_t handle) { return *static_cast<Reading*>(handle); }

tmsize_t read_bytes(thandle_t handle, void* out, tmsize_t size) {
  Reading& reading = reading_of(handle);
  const std::size_t left = reading.size - std::min(reading.at, reading.size);
  const std::size_t count = std::min(static_cast<std::size_t>(size), left);
  if (count > 0) std::memcpy(out, reading.bytes + reading.at, count);
  reading.at += count;
  return static_cast<tmsize_t>(count);
}

tmsize_t write_nothing(thandle_t, void*, tmsize_t) { return 0; }

toff_t seek(thandle_t handle, toff_t offset, int from) {
  Reading& reading = reading_of(handle);
  const toff_t base = from == SEEK_CUR ? reading.at : from == SEEK_END ? reading.size : 0;
  reading.at = static_cast<std::size_t>(std::min<toff_t>(base + offset, reading.size));
  return reading.at;
}

int close_nothing(thandle_t) { return 0; }

toff_t size_of(thandle_t handle) { return reading_of(handle).size; }

/// Lets libtiff read from the file's memory without a copy.
int map(thandle_t handle, void** base, toff_t* size) {
  *base = const_cast<std::uint8_t*>(reading_of(handle).bytes);
  *size = reading_of(handle).size;
  return 1;
}

void unmap(thandle_t, void*, toff_t) {}

void note(Reading& reading, const char* text) {
  if (std::exchange(reading.failed, true)) return;
  const millrace_call& call = *reading.call;
  std::snprintf(call.error, call.error_size, "tiff: damaged or cut short (%s)", text);
}

/// Keeps libtiff's first error; later ones follow from it.
int on_error(TIFF*, void* context, const char*, const char* format, va_list arguments) {
  char text[160];
  std::vsnprintf(text, sizeof text, format, arguments);
  text[std::strcspn(text, "\n")] = 0;
  note(*static_cast<Reading*>(context), text);
  return 1;
}

/// Ignores warnings: they concern tags that libtiff does without.
int on_warning(TIFF*, void*, const char*, const char*, va_list) { return 1; }

struct Close {
  void operator()(TIFF* file) const { TIFFClose(file); }
};
using File = std::unique_ptr<TIFF, Close>;

/// Opens a file whose largest allocation may be `most` bytes.
File open_file(Reading& reading, std::size_t most) {
  TIFFOpenOptions* options = TIFFOpenOptionsAlloc();
  if (options == nullptr) throw std::bad_alloc();
  // Handlers per file: threads share nothing.
  TIFFOpenOptionsSetErrorHandlerExtR(options, on_error, &reading);
  TIFFOpenOptionsSetWarningHandlerExtR(options, on_warning, nullptr);
  TIFFOpenOptionsSetMaxSingleMemAlloc(options, static_cast<tmsize_t>(most));
  TIFF* file = TIFFClientOpenExt("image", "r", &reading, read_bytes, write_nothing, seek,
                                 close_nothing, size_of, map, unmap, options);
  TIFFOpenOptionsFree(options);
  return File(file);
}

/// Converts the strips or tiles of an image to RGB or gray. One at a time, because libtiff shows
/// what an earlier one held where a damaged one lacks pixels.
class Converter {
 public:
  Converter(TIFF* file, Reading& reading) : reading_(reading) {
    char text[1024] = "";
    begun_ = TIFFRGBAImageOK(file, text) != 0 && TIFFRGBAImageBegin(&image_, file, 1, text) != 0;
    if (!begun_) {
      note(reading, text);
      return;
    }
    // No turning: the host does that by reading in another order.
    image_.orientation = image_.req_orientation = ORIENTATION_TOPLEFT;
    std::uint32_t columns = image_.width, rows = 0;
    if (TIFFIsTiled(file) != 0) {
      TIFFGetField(file, TIFFTAG_TILEWIDTH, &columns);
      TIFFGetField(file, TIFFTAG_TILELENGTH, &rows);
    } else {
      TIFFGetFieldDefaulted(file, TIFFTAG_ROWSPERSTRIP, &rows);
    }
    columns_ = std::clamp(columns, 1u, std::max(1u, image_.width));
    rows_ = std::clamp(rows, 1u, std::max(1u, image_.height));
    reading_.failed = false;  // what libtiff opened the file in spite of
  }
  ~Converter() {
    if (begun_) TIFFRGBAImageEnd(&image_);
  }
  Converter(const Converter&) = delete;
  Converter& operator=(const Converter&) = delete;

  bool begun() const { return begun_; }
  bool is_sized(const millrace_rect& whole) const {
    return image_.width == static_cast<std::uint32_t>(whole.x1) &&
           image_.height == static_cast<std::uint32_t>(whole.y1);
  }

  /// Returns false after an error.
  bool convert(millrace::Buffer& memory, std::uint32_t channels, std::uint8_t* pixels,
               std::size_t row_bytes) {
    auto* rgba =
        reinterpret_cast<std::uint32_t*>(memory.reserve(std::size_t{columns_} * rows_ * 4));
    for (std::uint32_t y = 0; y < image_.height; y += rows_)
      for (std::uint32_t x = 0; x < image_.width; x += columns_) {
        const std::uint32_t columns = std::min(columns_, image_.width - x);
        const std::uint32_t rows = std::min(rows_, image_.height - y);
        image_.row_offset = static_cast<int>(y);
        image_.col_offset = static_cast<int>(x);
        // Parts that libtiff does not write stay black.
        std::memset(rgba, 0, std::size_t{columns} * rows * 4);
        if (TIFFRGBAImageGet(&image_, rgba, columns, rows) == 0 || reading_.failed) return false;
        store(rgba, columns, rows, channels, pixels + y * row_bytes + x * channels, row_bytes);
      }
    return true;
  }

 private:
  static void store(const std::uint32_t* rgba, std::size_t columns, std::uint32_t rows,
                    std::uint32_t channels, std::uint8_t* pixels, std::size_t row_bytes) {
    constexpr int kBits = 14;
    for (std::uint32_t y = 0; y < rows; ++y, rgba += columns, pixels += row_bytes) {
      const auto* from = reinterpret_cast<const std::uint8_t*>(rgba);
      if (channels == 1)
        to_gray<kBits>(from, 4, columns, pixels);
      else
        for (std::size_t x = 0; x < columns; ++x) std::memcpy(pixels + 3 * x, from + 4 * x, 3);
    }
  }

  Reading& reading_;
  TIFFRGBAImage image_{};
  bool begun_ = false;
  std::uint32_t columns_ = 1, rows_ = 1;  ///< of a strip or tile
};

/// Copies the values of an image's strips or tiles.
class Copier {
 public:
  /// `most`: bytes that a strip or tile may take.
  Copier(TIFF* file, Reading& reading, std::size_t most)
      : file_(file), reading_(reading), most_(most) {
    TIFFGetField(file, TIFFTAG_IMAGEWIDTH, &width_);
    TIFFGetField(file, TIFFTAG_IMAGELENGTH, &height_);
    TIFFGetFieldDefaulted(file, TIFFTAG_SAMPLESPERPIXEL, &samples_);
    TIFFGetFieldDefaulted(file, TIFFTAG_BITSPERSAMPLE, &bits_);
    TIFFGetFieldDefaulted(file, TIFFTAG_PLANARCONFIG, &planes_);
    tiled_ = TIFFIsTiled(file) != 0;
    columns_ = width_;
    if (tiled_) {
      TIFFGetField(file, TIFFTAG_TILEWIDTH, &columns_);
      TIFFGetField(file, TIFFTAG_TILELENGTH, &rows_);
    } else {
      TIFFGetFieldDefaulted(file, TIFFTAG_ROWSPERSTRIP, &rows_);
    }
    rows_ = std::clamp(rows_, 1u, std::max(1u, tiled_ ? rows_ : height_));
    columns_ = std::max(1u, columns_);
    reading_.failed = false;  // what libtiff opened the file in spite of
  }

  /// Returns whether the file's pixels have the size and the form that its header promised.
  bool fits(const millrace_decode& request) const {
    return width_ == static_cast<std::uint32_t>(request.region.x1) &&
           height_ == static_cast<std::uint32_t>(request.region.y1) &&
           bits_ == std::max<std::uint32_t>(request.depth, MILLRACE_DEPTH_8) &&
           samples_ >= request.channels;
  }

  /// Copies the first channels of every pixel. Returns false after an error.
  bool copy(millrace::Buffer& memory, const millrace_decode& request, std::uint8_t* pixels,
            std::size_t row_bytes) {
    const bool apart = planes_ == PLANARCONFIG_SEPARATE;
    const std::size_t value = bits_ / 8u, pixel = request.channels * value;
    const std::size_t stored = apart ? value : samples_ * value;
    const std::size_t part_row = columns_ * stored;
    const tmsize_t bytes = tiled_ ? TIFFTileSize(file_) : TIFFStripSize(file_);
    if (bytes <= 0 || static_cast<std::size_t>(bytes) < part_row) return false;
    if (static_cast<std::size_t>(bytes) > most_) {
      note(reading_, "its strips or tiles are larger than the picture");
      return false;
    }
    std::uint8_t* const part = memory.reserve(static_cast<std::size_t>(bytes));
    for (std::uint32_t s = 0; s < (apart ? request.channels : 1); ++s)
      for (std::uint32_t y = 0; y < height_; y += rows_)
        for (std::uint32_t x = 0; x < width_; x += columns_) {
          const std::size_t rows = std::min(rows_, height_ - y);
          const std::size_t columns = std::min(columns_, width_ - x);
          const auto plane = static_cast<std::uint16_t>(s);
          const tmsize_t got =
              tiled_
                  ? TIFFReadEncodedTile(file_, TIFFComputeTile(file_, x, y, 0, plane), part, bytes)
                  : TIFFReadEncodedStrip(file_, TIFFComputeStrip(file_, y, plane), part, bytes);
          if (reading_.failed || got < static_cast<tmsize_t>(rows * part_row)) return false;
          std::uint8_t* to = pixels + y * row_bytes + x * pixel + s * value;
          for (std::size_t row = 0; row < rows; ++row, to += row_bytes) {
            const std::uint8_t* from = part + row * part_row;
            if (stored == pixel && !apart) {
              std::memcpy(to, from, columns * pixel);
              continue;
            }
            const std::size_t copied = apart ? value : pixel;
            for (std::size_t i = 0; i < columns; ++i)
              std::memcpy(to + i * pixel, from + i * stored, copied);
          }
        }
    return true;
  }

 private:
  TIFF* file_;
  Reading& reading_;
  std::size_t most_;
  std::uint32_t width_ = 0, height_ = 0, columns_ = 1, rows_ = 1;
  std::uint16_t samples_ = 1, bits_ = 1, planes_ = PLANARCONFIG_CONTIG;
  bool tiled_ = false;
};

/// Makes a context, which holds a few rows of one image.
void* open(const void*) { return new (std::nothrow) millrace::Buffer; }

void close(void* context) { delete static_cast<millrace::Buffer*>(context); }

millrace_status decode(void* context, const std::uint8_t* bytes, std::size_t size,
                       const millrace_decode* request, std::uint8_t* pixels, std::size_t row_bytes,
                       millrace_call* call) try {
  auto& memory = *static_cast<millrace::Buffer*>(context);
  Reading reading{bytes, size, 0, call, false};
  std::snprintf(call->error, call->error_size, "tiff: damaged or cut short");
  const millrace_rect& whole = request->region;
  const std::size_t pixels_in_all =
      static_cast<std::size_t>(whole.x1) * static_cast<std::size_t>(whole.y1);
  const bool as_stored =
      request->depth > MILLRACE_DEPTH_8 || (request->channels != 1 && request->channels != 3);
  // Padded to whole tiles, and with one more channel, which may be transparency.
  const std::size_t pixel =
      std::max<std::size_t>(kMaxBytesPerPixel, 4 * sizeof(float) * (request->channels + 1));
  const std::size_t most = kTables + pixel * pixels_in_all;
  const File file = open_file(reading, most);
  if (file == nullptr) return MILLRACE_BAD_DATA;
  const auto disagree = [&] {
    std::snprintf(call->error, call->error_size,
                  "tiff: its header and its pixels disagree on the size");
    return MILLRACE_BAD_DATA;
  };
  if (as_stored) {
    Copier copier(file.get(), reading, most);
    if (!copier.fits(*request)) return disagree();
    const bool copied = copier.copy(memory, *request, pixels, row_bytes);
    if (memory.capacity() > kKeep) memory = millrace::Buffer();
    return copied ? MILLRACE_OK : MILLRACE_BAD_DATA;
  }
  std::uint16_t format = SAMPLEFORMAT_UINT;
  TIFFGetFieldDefaulted(file.get(), TIFFTAG_SAMPLEFORMAT, &format);
  if (format == SAMPLEFORMAT_IEEEFP) {
    std::snprintf(call->error, call->error_size,
                  "tiff: its pixels are floats\nset decode.depth=float");
    return MILLRACE_BAD_DATA;
  }
  Converter converter(file.get(), reading);
  if (!converter.begun()) return MILLRACE_BAD_DATA;
  // `pixels` has room for the size in the header that millrace read.
  if (!converter.is_sized(whole)) return disagree();
  const bool converted = converter.convert(memory, request->channels, pixels, row_bytes);
  if (memory.capacity() > kKeep) memory = millrace::Buffer();
  return converted ? MILLRACE_OK : MILLRACE_BAD_DATA;
} catch (const std::exception& exception) {
  std::snprintf(call->error, call->error_size, "tiff: %s", exception.what());
  return MILLRACE_BAD_DATA;
}

constexpr Format kTiff{"tiff",
                       "TIFF, the first picture of the file",
                       [](const std::uint8_t* b, std::size_t n) -> int {
                         return has(b, n, 0, "II*\0", 4) || has(b, n, 0, "MM\0*", 4);
                       },
                       tiff_header,
                       open,
                       close,
                       decode};

}  // namespace

extern constinit const millrace_unit kTiffUnit = unit_of<kTiff>();

}  // namespace imgcodecs
