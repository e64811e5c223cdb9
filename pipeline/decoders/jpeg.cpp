// JPEG through libjpeg-turbo: accurate integer DCT and fancy upsampling, so that pixels equal those
// of other trainers' loaders; a damaged file is an error, never grey. libjpeg's own API rather than
// turbojpeg's: it tells warnings apart, keeps its state from the header to the pixels, and decodes
// regions: columns outside get no inverse DCT, rows above none either, rows below are not read.
#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>

// clang-format off: jpeglib.h uses FILE and size_t without including them, so it comes later.
#include <jerror.h>
#include <jpeglib.h>
// clang-format on

#include "millrace/buffer.h"
#include "millrace/exif.hpp"
#include "millrace/millrace.hpp"
#include "pipeline/decoders/cmyk.h"
#include "plugins/host/builtin.h"

namespace millrace::pipeline {
namespace {

/// More scans than any encoder writes: a small file could else keep a worker busy for hours.
constexpr int kMaxScans = 500;
/// 1, 1/2, 1/4 and 1/8 of the sides: 8, 4, 2 and 1 samples a block and side.
constexpr std::uint32_t kScales = 0b1111;
/// Columns beside a region that fancy upsampling needs to give it the whole image's levels: half a
/// chroma sample, which is one pixel; and one more, because libjpeg upsamples a crop of two columns
/// differently. Rows need none, as libjpeg keeps the row above and reads on below.
constexpr std::int32_t kMargin = 2;

struct Context {
  jpeg_decompress_struct codec;
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  std::jmp_buf escape;
  char* message;
  std::size_t message_size;

  // Of the image whose header was read last.
  const std::uint8_t* parsed;  ///< its bytes while the codec stands behind the header, else null
  std::size_t parsed_size;
  std::uint32_t orientation;
  std::int32_t width, height;
  std::int32_t grain;  ///< width of a column of blocks of all components, pixels

  Buffer row;  ///< for rows that cannot be written in place
};

Context& context_of(j_common_ptr codec) { return *static_cast<Context*>(codec->client_data); }

/// Two lines: what is wrong, what to do.
[[noreturn]] void leave(j_common_ptr codec, const char* text) {
  Context& context = context_of(codec);
  std::snprintf(context.message, context.message_size, "jpeg: %s", text);
  std::longjmp(context.escape, 1);
}
[[noreturn]] void leave(jpeg_decompress_struct& codec, const char* text) {
  leave(reinterpret_cast<j_common_ptr>(&codec), text);
}

[[noreturn]] void on_error(j_common_ptr codec) {
  if (codec->err->msg_code == JERR_BAD_PRECISION)
    leave(codec, "samples of other than 8 bits are not supported\nconvert it to 8 bits a channel");
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

/// Instead of libjpeg's way past APP1: looks for EXIF's orientation where it lies, without a copy.
::boolean on_app1(j_decompress_ptr codec) {
  jpeg_source_mgr& source = *codec->src;
  const std::uint8_t* bytes = source.next_input_byte;
  constexpr std::size_t kLength = 2;
  if (source.bytes_in_buffer < kLength) leave(*codec, "Premature end of JPEG file");
  const std::size_t length = bytes[0] * 256u + bytes[1];
  if (length < kLength) leave(*codec, "Bogus marker length");
  constexpr char kExif[] = "Exif\0";  // and a second 0
  const std::size_t size = std::min(length, source.bytes_in_buffer);
  std::uint32_t& orientation = context_of(reinterpret_cast<j_common_ptr>(codec)).orientation;
  if (constexpr std::size_t kTiff = kLength + sizeof kExif;
      orientation == 0 && size > kTiff && std::memcmp(bytes + kLength, kExif, sizeof kExif) == 0)
    orientation = exif_orientation(bytes + kTiff, size - kTiff);
  source.next_input_byte += kLength;
  source.bytes_in_buffer -= kLength;
  source.skip_input_data(codec, static_cast<long>(length - kLength));
  return TRUE;
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
  jpeg_set_marker_processor(&context->codec, JPEG_APP0 + 1, on_app1);
  context->progress.progress_monitor = on_progress;
  context->codec.progress = &context->progress;
  return context;
}

void close(void* memory) {
  auto* context = static_cast<Context*>(memory);
  jpeg_destroy_decompress(&context->codec);
  delete context;
}

void abort(Context& context) {
  jpeg_abort_decompress(&context.codec);
  context.parsed = nullptr;
}

/// A block takes at least one bit for its mean level. Without this, a header of a few bytes could
/// ask for a gigabyte of coefficients; with it, memory stays below 1 KiB a byte of the file.
void check_size(jpeg_decompress_struct& codec, std::size_t size) {
  std::uint64_t blocks = 0;
  for (int i = 0; i < codec.num_components; ++i)
    blocks +=
        std::uint64_t{codec.comp_info[i].width_in_blocks} * codec.comp_info[i].height_in_blocks;
  if (blocks / 8 <= size) return;
  char text[160];
  std::snprintf(text, sizeof text,
                "%ux%u pixels in %zu bytes: it was cut short, or its header is damaged",
                codec.image_width, codec.image_height, size);
  leave(codec, text);
}

/// Parses up to the first scan; leaves by longjmp on failure.
void start(Context& context, const std::uint8_t* bytes, std::size_t size) {
  jpeg_decompress_struct& codec = context.codec;
  context.orientation = 0;
  jpeg_mem_src(&codec, bytes, size);
  jpeg_read_header(&codec, TRUE);
  check_size(codec, size);
  context.parsed = bytes;
  context.parsed_size = size;
  context.width = static_cast<std::int32_t>(codec.image_width);
  context.height = static_cast<std::int32_t>(codec.image_height);
  context.grain = DCTSIZE * (codec.num_components == 1 ? 1 : codec.max_h_samp_factor);
}

millrace_status header(void* memory, const std::uint8_t* bytes, std::size_t size,
                       millrace_image_header* out, millrace_call* call) {
  auto& context = *static_cast<Context*>(memory);
  context.message = call->error;
  context.message_size = call->error_size;
  if (setjmp(context.escape) != 0) {
    abort(context);
    return MILLRACE_BAD_DATA;
  }
  if (context.parsed != nullptr) abort(context);
  start(context, bytes, size);
  *out = {context.codec.image_width, context.codec.image_height,
          context.codec.num_components == 1 ? 1u : 3u, context.orientation, kScales};
  return MILLRACE_OK;
}

/// Columns from a whole column of blocks on, rows as asked for.
void region(void* memory, millrace_decode* request) {
  const auto& context = *static_cast<Context*>(memory);
  const std::int32_t grain = context.grain >> request->scale;
  const std::int32_t width = (context.width + (1 << request->scale) - 1) >> request->scale;
  millrace_rect& rect = request->region;
  rect.x0 = std::max(rect.x0 - kMargin, 0) / grain * grain;
  rect.x1 = std::min(rect.x1 + kMargin, width);
}

/// Where a progressive file lacks the last bits of low frequencies, libjpeg guesses them from the
/// blocks around, which a region lacks.
bool is_smoothed(const jpeg_decompress_struct& codec) {
  constexpr int kGuessed = 10;  // in zigzag order
  if (!codec.progressive_mode || codec.coef_bits == nullptr) return false;
  for (int i = 0; i < codec.num_components; ++i)
    for (int k = 0; k < kGuessed; ++k)
      if (codec.coef_bits[i][k] != 0) return true;
  return false;
}

/// libjpeg-turbo before 3.0 miscounts the columns of a component that is cropped, takes part of
/// its upsampling from a larger inverse DCT (scaled images only) and the rest from an upsampler:
/// 4x2.
bool crops_well_scaled(const jpeg_decompress_struct& codec) {
  for (int i = 0; i < codec.num_components; ++i) {
    const jpeg_component_info& part = codec.comp_info[i];
    const bool dct_takes_none = part.h_samp_factor == codec.max_h_samp_factor ||
                                part.v_samp_factor == codec.max_v_samp_factor;
    const bool dct_takes_all = part.h_samp_factor * 2 == codec.max_h_samp_factor &&
                               part.v_samp_factor * 2 == codec.max_v_samp_factor;
    if (!dct_takes_none && !dct_takes_all) return false;
  }
  return true;
}

/// Reads rows that libjpeg may write in place.
void read_in_place(jpeg_decompress_struct& codec, JDIMENSION end, std::uint8_t* pixels,
                   std::size_t row_bytes) {
  const JDIMENSION begin = codec.output_scanline;
  while (codec.output_scanline < end) {
    constexpr JDIMENSION kRows = 4;  // it writes at most four at a time
    JSAMPROW rows[kRows];
    const JDIMENSION count = std::min(kRows, end - codec.output_scanline);
    for (JDIMENSION i = 0; i < count; ++i)
      rows[i] = pixels + (codec.output_scanline - begin + i) * row_bytes;
    jpeg_read_scanlines(&codec, rows, count);
  }
}

/// Reads rows of which only a part is asked for, or whose colours libjpeg doesn't convert.
void read_through_row(Context& context, const millrace_decode& request, std::size_t column,
                      std::uint8_t* pixels, std::size_t row_bytes) {
  jpeg_decompress_struct& codec = context.codec;
  const auto width = static_cast<std::size_t>(request.region.x1 - request.region.x0);
  const auto parts = static_cast<std::size_t>(codec.output_components);
  JSAMPROW row = context.row.data();
  while (codec.output_scanline < static_cast<JDIMENSION>(request.region.y1)) {
    const bool wanted = codec.output_scanline >= static_cast<JDIMENSION>(request.region.y0);
    jpeg_read_scanlines(&codec, &row, 1);
    if (!wanted) continue;
    const std::uint8_t* from = row + column * parts;
    if (codec.out_color_space == JCS_CMYK)
      convert_cmyk({from, width * parts}, request.channels, pixels);
    else
      std::memcpy(pixels, from, width * parts);
    pixels += row_bytes;
  }
}

millrace_status decode(void* memory, const std::uint8_t* bytes, std::size_t size,
                       const millrace_decode* request, std::uint8_t* pixels, std::size_t row_bytes,
                       millrace_call* call) {
  auto& context = *static_cast<Context*>(memory);
  jpeg_decompress_struct& codec = context.codec;
  context.message = call->error;
  context.message_size = call->error_size;
  if (setjmp(context.escape) != 0) {
    abort(context);
    return MILLRACE_BAD_DATA;
  }
  if (context.parsed != bytes || context.parsed_size != size) {
    if (context.parsed != nullptr) abort(context);
    start(context, bytes, size);
  }
  context.parsed = nullptr;
  const bool is_cmyk = codec.jpeg_color_space == JCS_CMYK || codec.jpeg_color_space == JCS_YCCK;
  codec.out_color_space = is_cmyk ? JCS_CMYK : request->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  codec.dct_method = JDCT_ISLOW;
  codec.do_fancy_upsampling = TRUE;
  codec.scale_num = 1;
  codec.scale_denom = 1u << request->scale;
  jpeg_start_decompress(&codec);

  const millrace_rect& rect = request->region;
  auto left = static_cast<JDIMENSION>(rect.x0);
  auto width = static_cast<JDIMENSION>(rect.x1 - rect.x0);
  const bool in_parts = !is_smoothed(codec) && (request->scale == 0 || crops_well_scaled(codec));
  if (in_parts) {
    jpeg_crop_scanline(&codec, &left, &width);
    jpeg_skip_scanlines(&codec, static_cast<JDIMENSION>(rect.y0));
  } else {
    left = 0;
  }
  const std::size_t column = static_cast<std::size_t>(rect.x0) - left;
  if (is_cmyk || !in_parts || column != 0 ||
      codec.output_width != static_cast<JDIMENSION>(rect.x1 - rect.x0)) {
    context.row.reserve(std::size_t{codec.output_width} *
                        static_cast<std::size_t>(codec.output_components));
    read_through_row(context, *request, column, pixels, row_bytes);
  } else {
    read_in_place(codec, static_cast<JDIMENSION>(rect.y1), pixels, row_bytes);
  }
  if (codec.output_scanline == codec.output_height)
    jpeg_finish_decompress(&codec);  // reads on to the end marker: a file cut short shows here
  else
    jpeg_abort_decompress(&codec);
  return MILLRACE_OK;
}

constexpr millrace_decoder kFunctions{
    sizeof(millrace_decoder), sniff, open, close, header, region, decode};

constexpr millrace_unit unit() {
  millrace_unit unit{};
  unit.struct_size = sizeof unit;
  unit.name = "jpeg";
  unit.help = "JPEG: baseline, progressive, arithmetic; gray, colour, CMYK; regions, 1/2 to 1/8";
  unit.create = detail::create_nothing;
  unit.destroy = detail::destroy_nothing;
  unit.decoder = &kFunctions;
  return unit;
}

constexpr millrace_unit kJpeg = unit();
constexpr const millrace_unit* kUnits[] = {&kJpeg};

constexpr millrace_plugin_table kTable{MILLRACE_MAGIC,
                                       MILLRACE_ABI_MAJOR,
                                       MILLRACE_ABI_MINOR,
                                       sizeof(millrace_plugin_table),
                                       "decoders",
                                       "1.0",
                                       "MIT",
                                       kUnits,
                                       std::size(kUnits)};

const plugins::BuiltIn kRegistered{kTable};

}  // namespace
}  // namespace millrace::pipeline
