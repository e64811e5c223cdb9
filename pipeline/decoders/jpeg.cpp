// JPEG through libjpeg-turbo: accurate integer DCT and fancy upsampling, so that pixels equal those
// of other trainers' loaders; a damaged file is an error, never grey. libjpeg's own API rather than
// turbojpeg's: it tells warnings apart, keeps its state from image to image, and can later decode
// a region.
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>

// clang-format off: jpeglib.h uses FILE and size_t without including them, so it comes later.
#include <jerror.h>
#include <jpeglib.h>
// clang-format on

#include "pipeline/units/builtin.h"
#include "plugins/millrace.hpp"

namespace millrace {
namespace {

/// More scans than any encoder writes: a small file could else keep a worker busy for hours.
constexpr int kMaxScans = 500;

struct Context {
  jpeg_decompress_struct codec;
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  std::jmp_buf escape;
  char* message;
  std::size_t message_size;
};

Context& context_of(j_common_ptr codec) { return *static_cast<Context*>(codec->client_data); }

[[noreturn]] void leave(j_common_ptr codec, const char* text) {
  Context& context = context_of(codec);
  std::snprintf(context.message, context.message_size, "jpeg: %s", text);
  std::longjmp(context.escape, 1);
}

[[noreturn]] void on_error(j_common_ptr codec) {
  char text[JMSG_LENGTH_MAX];
  codec->err->format_message(codec, text);
  leave(codec, text);
}

/// Warnings that leave the pixels whole.
bool is_harmless(const jpeg_error_mgr& errors) {
  switch (errors.msg_code) {
    case JWRN_ADOBE_XFORM:
    case JWRN_BOGUS_ICC:
    case JWRN_JFIF_MAJOR:
      return true;
    // Padding between the last pixel and the end marker; cameras write it.
    case JWRN_EXTRANEOUS_DATA:
      return errors.msg_parm.i[1] == JPEG_EOI;
    default:
      return false;
  }
}

void on_message(j_common_ptr codec, int level) {
  if (level < 0 && !is_harmless(*codec->err)) on_error(codec);
}

void on_progress(j_common_ptr codec) {
  if (reinterpret_cast<j_decompress_ptr>(codec)->input_scan_number > kMaxScans)
    leave(codec, "more scans than any encoder writes");
}

int sniff(const std::uint8_t* bytes, std::size_t size) {
  return size >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

void* open(const void*) {
  auto* context = new (std::nothrow) Context{};
  if (context == nullptr) return nullptr;
  char text[JMSG_LENGTH_MAX];
  context->message = text;
  context->message_size = sizeof text;
  context->codec.err = jpeg_std_error(&context->errors);
  context->errors.error_exit = on_error;
  context->errors.emit_message = on_message;
  context->codec.client_data = context;
  if (setjmp(context->escape) != 0) {
    delete context;
    return nullptr;
  }
  jpeg_create_decompress(&context->codec);
  context->progress.progress_monitor = on_progress;
  context->codec.progress = &context->progress;
  return context;
}

void close(void* memory) {
  auto* context = static_cast<Context*>(memory);
  jpeg_destroy_decompress(&context->codec);
  delete context;
}

/// Parses up to the first scan; leaves by longjmp on failure.
void start(Context& context, const std::uint8_t* bytes, std::size_t size) {
  jpeg_decompress_struct& codec = context.codec;
  jpeg_mem_src(&codec, bytes, size);
  jpeg_read_header(&codec, TRUE);
  if (codec.jpeg_color_space == JCS_CMYK || codec.jpeg_color_space == JCS_YCCK)
    leave(reinterpret_cast<j_common_ptr>(&codec),
          "CMYK images are not supported: convert it to RGB");
}

millrace_status header(void* memory, const std::uint8_t* bytes, std::size_t size,
                       millrace_image_header* out, millrace_call* call) {
  auto& context = *static_cast<Context*>(memory);
  context.message = call->error;
  context.message_size = call->error_size;
  if (setjmp(context.escape) != 0) {
    jpeg_abort_decompress(&context.codec);
    return 1;
  }
  start(context, bytes, size);
  *out = {context.codec.image_width, context.codec.image_height,
          context.codec.num_components == 1 ? 1u : 3u, 0, 1};
  jpeg_abort_decompress(&context.codec);
  return 0;
}

millrace_status decode(void* memory, const std::uint8_t* bytes, std::size_t size,
                       const millrace_decode* request, std::uint8_t* pixels, std::size_t row_bytes,
                       millrace_call* call) {
  auto& context = *static_cast<Context*>(memory);
  jpeg_decompress_struct& codec = context.codec;
  context.message = call->error;
  context.message_size = call->error_size;
  if (setjmp(context.escape) != 0) {
    jpeg_abort_decompress(&codec);
    return 1;
  }
  start(context, bytes, size);
  codec.out_color_space = request->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  codec.dct_method = JDCT_ISLOW;
  codec.do_fancy_upsampling = TRUE;
  jpeg_start_decompress(&codec);
  while (codec.output_scanline < codec.output_height) {
    constexpr JDIMENSION kRows = 4;
    JSAMPROW rows[kRows];
    JDIMENSION count = 0;
    for (; count < kRows && codec.output_scanline + count < codec.output_height; ++count)
      rows[count] = pixels + (codec.output_scanline + count) * row_bytes;
    jpeg_read_scanlines(&codec, rows, count);
  }
  jpeg_finish_decompress(&codec);  // reads on to the end marker: a file cut short shows here
  return 0;
}

constexpr millrace_decoder kFunctions{
    sizeof(millrace_decoder), sniff, open, close, header, nullptr, decode};

constexpr millrace_unit unit() {
  millrace_unit unit{};
  unit.struct_size = sizeof unit;
  unit.name = "jpeg";
  unit.help = "JPEG, baseline and progressive, gray and colour";
  unit.create = detail::create_nothing;
  unit.destroy = detail::destroy_nothing;
  unit.decoder = &kFunctions;
  return unit;
}

constexpr millrace_unit kJpeg = unit();
constexpr const millrace_unit* kUnits[] = {&kJpeg};

}  // namespace

const millrace_plugin_table kBuiltInDecoders{MILLRACE_MAGIC,
                                             MILLRACE_ABI_MAJOR,
                                             MILLRACE_ABI_MINOR,
                                             sizeof(millrace_plugin_table),
                                             "decoders",
                                             "1.0",
                                             "MIT",
                                             kUnits,
                                             std::size(kUnits)};

}  // namespace millrace
