// A plugin that decodes PNG with libpng, and BMP, WebP and TIFF with OpenCV. As a plugin it keeps
// OpenCV and its dependencies out of a program that meets only JPEG.
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <opencv2/core/utility.hpp>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <string>

#include "millrace/millrace.hpp"
#include "plugins/imgcodecs/error_text.h"
#include "plugins/imgcodecs/headers.h"
#include "plugins/imgcodecs/png.h"

namespace imgcodecs {
namespace {

/// One format: its first bytes, and its header parser.
struct Format {
  const char* name;
  const char* help;
  int (*sniff)(const std::uint8_t* bytes, std::size_t size);
  ReadHeader read_header;
  decltype(millrace_decoder::decode) decode;
};

bool has(const std::uint8_t* bytes, std::size_t size, std::size_t at, const char* text,
         std::size_t length) {
  return size >= at + length && std::memcmp(bytes + at, text, length) == 0;
}

/// Returns a dummy context: OpenCV keeps no state from image to image, and the host needs a pointer
/// that is not null.
void* open(const void*) {
  static std::once_flag once;
  std::call_once(once, [] {
    cv::setNumThreads(0);  // OpenCV's threads would compete with the workers
    cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
  });
  static char nothing;
  return &nothing;
}

void close(void*) {}

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

millrace_status fail(const std::string& reason, millrace_call* call) {
  std::snprintf(call->error, call->error_size, "%s", reason.c_str());
  return MILLRACE_BAD_DATA;
}

/// Decodes with OpenCV into OpenCV's own memory: given ours, it would not report a failure.
millrace_status decode(void*, const std::uint8_t* bytes, std::size_t size,
                       const millrace_decode* request, std::uint8_t* pixels, std::size_t row_bytes,
                       millrace_call* call) try {
  if (size > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    return fail("a file of 2 GiB or more", call);
  const bool gray = request->channels == 1;
  const int mode = gray ? cv::IMREAD_GRAYSCALE : cv::IMREAD_COLOR;
  const cv::Mat file(1, static_cast<int>(size), CV_8UC1, const_cast<std::uint8_t*>(bytes));
  const ErrorText text;
  const cv::Mat image = cv::imdecode(file, mode | cv::IMREAD_IGNORE_ORIENTATION);
  if (image.empty()) {
    const std::string reason = text.reason();
    return fail("damaged or cut short" + (reason.empty() ? reason : " (" + reason + ")"), call);
  }
  // `pixels` has room for the size in the header, so any other size is an error.
  const millrace_rect& whole = request->region;
  if (image.cols != whole.x1 || image.rows != whole.y1)
    return fail("its header and its pixels disagree on the size", call);

  cv::Mat out(image.rows, image.cols, gray ? CV_8UC1 : CV_8UC3, pixels, row_bytes);
  if (gray)
    image.copyTo(out);
  else
    cv::cvtColor(image, out, cv::COLOR_BGR2RGB);
  return MILLRACE_OK;
} catch (const std::exception& exception) {
  return fail(exception.what(), call);
}

constexpr Format kPng{"png", "PNG; transparency is dropped, 16 bits become 8",
                      [](const std::uint8_t* b, std::size_t n) -> int {
                        return has(b, n, 0, "\x89PNG\r\n\x1a\n", 8);
                      },
                      png_header, decode_png};
constexpr Format kBmp{"bmp", "Windows bitmap",
                      [](const std::uint8_t* b, std::size_t n) -> int {
                        return n >= 18 && has(b, n, 0, "BM", 2) && b[15] == 0 && b[16] == 0;
                      },
                      bmp_header, decode};
constexpr Format kWebp{"webp", "WebP, lossy and lossless, no animation",
                       [](const std::uint8_t* b, std::size_t n) -> int {
                         return has(b, n, 0, "RIFF", 4) && has(b, n, 8, "WEBP", 4);
                       },
                       webp_header, decode};
constexpr Format kTiff{"tiff", "TIFF, the first picture of the file",
                       [](const std::uint8_t* b, std::size_t n) -> int {
                         return has(b, n, 0, "II*\0", 4) || has(b, n, 0, "MM\0*", 4);
                       },
                       tiff_header, decode};

template <const Format& format>
constexpr millrace_decoder kFunctions{sizeof(millrace_decoder), format.sniff, open,         close,
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

constexpr const millrace_unit* kUnits[] = {&kUnit<kPng>, &kUnit<kBmp>, &kUnit<kWebp>,
                                           &kUnit<kTiff>};

}  // namespace
}  // namespace imgcodecs

extern "C" __attribute__((visibility("default")))
const millrace_plugin_table millrace_plugin = {MILLRACE_MAGIC,
                                               MILLRACE_ABI_MAJOR,
                                               MILLRACE_ABI_MINOR,
                                               sizeof(millrace_plugin_table),
                                               "imgcodecs",
                                               "0.2.0 (OpenCV " CV_VERSION ")",
                                               "Apache-2.0",
                                               imgcodecs::kUnits,
                                               std::size(imgcodecs::kUnits)};
