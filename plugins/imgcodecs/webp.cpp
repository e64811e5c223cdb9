// Decodes WebP with libwebp, in place where colours are wanted. Levels equal those of OpenCV's
// imdecode, which calls the same functions. Drops transparency.
#include <webp/decode.h>

#include <cstdio>
#include <exception>
#include <new>

#include "millrace/buffer.h"
#include "plugins/imgcodecs/format.h"
#include "plugins/imgcodecs/gray.h"

namespace imgcodecs {
namespace {

/// Working memory above this size is returned to the system after each image.
constexpr std::size_t kKeep = std::size_t{16} << 20;

const char* text_of(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return "out of memory";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "uses a feature that libwebp does not support";
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
      return "damaged or cut short (it ends too early)";
    default:
      return "damaged or cut short (its bitstream is wrong)";
  }
}

millrace_status fail(const char* reason, millrace_call* call) {
  std::snprintf(call->error, call->error_size, "webp: %s", reason);
  return MILLRACE_BAD_DATA;
}

/// Decodes colours. Returns libwebp's status.
VP8StatusCode decode_colours(const std::uint8_t* bytes, std::size_t size, std::uint8_t* pixels,
                             std::size_t row_bytes, const millrace_rect& whole) {
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) return VP8_STATUS_INVALID_PARAM;
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = pixels;
  config.output.u.RGBA.stride = static_cast<int>(row_bytes);
  const auto rows = static_cast<std::size_t>(whole.y1),
             columns = static_cast<std::size_t>(whole.x1);
  config.output.u.RGBA.size = (rows - 1) * row_bytes + columns * 3;
  return WebPDecode(bytes, size, &config);
}

/// Makes a context, which holds the colours of one image that is wanted in gray.
void* open(const void*) { return new (std::nothrow) millrace::Buffer; }

void close(void* context) { delete static_cast<millrace::Buffer*>(context); }

millrace_status decode(void* context, const std::uint8_t* bytes, std::size_t size,
                       const millrace_decode* request, std::uint8_t* pixels, std::size_t row_bytes,
                       millrace_call* call) try {
  const millrace_rect& whole = request->region;
  int width = 0, height = 0;
  if (WebPGetInfo(bytes, size, &width, &height) == 0)
    return fail("damaged or cut short (its header is wrong)", call);
  // `pixels` has room for the size in the header that millrace read.
  if (width != whole.x1 || height != whole.y1)
    return fail("its header and its pixels disagree on the size", call);
  if (request->channels == 3) {
    const VP8StatusCode status = decode_colours(bytes, size, pixels, row_bytes, whole);
    return status == VP8_STATUS_OK ? MILLRACE_OK : fail(text_of(status), call);
  }
  auto& colours = *static_cast<millrace::Buffer*>(context);
  const auto columns = static_cast<std::size_t>(width), rows = static_cast<std::size_t>(height);
  std::uint8_t* rgb = colours.reserve(columns * 3 * rows);
  const VP8StatusCode status = decode_colours(bytes, size, rgb, columns * 3, whole);
  constexpr int kBits = 15;
  if (status == VP8_STATUS_OK)
    for (std::size_t y = 0; y < rows; ++y)
      to_gray<kBits>(rgb + y * columns * 3, 3, columns, pixels + y * row_bytes);
  if (colours.capacity() > kKeep) colours = millrace::Buffer();
  return status == VP8_STATUS_OK ? MILLRACE_OK : fail(text_of(status), call);
} catch (const std::exception& exception) {
  return fail(exception.what(), call);
}

constexpr Format kWebp{"webp",
                       "WebP, lossy and lossless, no animation",
                       [](const std::uint8_t* b, std::size_t n) -> int {
                         return has(b, n, 0, "RIFF", 4) && has(b, n, 8, "WEBP", 4);
                       },
                       webp_header,
                       open,
                       close,
                       decode};

}  // namespace

extern constinit const millrace_unit kWebpUnit = unit_of<kWebp>();

}  // namespace imgcodecs
