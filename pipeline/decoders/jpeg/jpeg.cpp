// Decodes JPEG with libjpeg-turbo: accurate integer DCT and fancy upsampling, so that pixels equal
// those of other loaders. A damaged file is an error and never turns gray.
//
// Uses libjpeg's own API rather than turbojpeg's: it reports warnings separately, keeps its state
// from the header to the pixels, and decodes regions. Columns outside a region and rows above it
// get no inverse DCT; rows below are not read.
//
// Huffman codes of ordinary files are decoded by EntropyDecoder behind that API (entropy_hook.h). A
// file on which it stops, or on which libjpeg reports anything meanwhile, is decoded again by
// libjpeg-turbo alone, so that pixels and messages are always libjpeg-turbo's.
#include "pipeline/decoders/jpeg/jpeg.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <csetjmp>
#include <cstring>
#include <iterator>
#include <new>
#include <span>
#include <utility>

#include "millrace/buffer.h"
#include "millrace/exif.hpp"
#include "millrace/millrace.hpp"
#include "pipeline/decoders/jpeg/context.h"
#include "pipeline/decoders/jpeg/entropy_hook.h"
#include "plugins/host/registry.h"

namespace millrace::pipeline {
namespace {

/// Converts four inks per pixel, as libjpeg delivers CMYK and YCCK, to `channels` levels per pixel.
/// 255 means no ink: Adobe stores inks inverted, and Pillow, OpenCV and torchvision read every file
/// that way, with or without Adobe's marker. RGB (3): K - round((255 - ink) K / 255). Gray (1):
/// BT.601 luma of that with 16-bit weights. Both equal Pillow's convert("RGB") and convert("L") to
/// the last bit.
void convert_cmyk(std::span<const std::uint8_t> inks, std::uint32_t channels, std::uint8_t* out) {
  for (std::size_t i = 0; i + 4 <= inks.size(); i += 4) {
    const std::uint32_t light = inks[i + 3];
    std::uint32_t rgb[3];
    for (std::size_t c = 0; c < 3; ++c) {
      const std::uint32_t product = (255u - inks[i + c]) * light + 128;
      rgb[c] = light - ((product + (product >> 8)) >> 8);
    }
    if (channels == 3)
      for (const std::uint32_t level : rgb) *out++ = static_cast<std::uint8_t>(level);
    else
      *out++ = static_cast<std::uint8_t>(
          (rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
  }
}

/// More scans than any encoder writes. Without a limit, a small file could keep a worker busy for
/// hours.
constexpr int kMaxScans = 500;
/// Scales 1, 1/2, 1/4 and 1/8, which decode 8, 4, 2 and 1 samples per side of a block.
constexpr std::uint32_t kScales = 0b1111;
/// Columns beside a region that libjpeg needs to give it the whole image's levels: one pixel (half
/// a chroma sample) for fancy upsampling, and one more because libjpeg upsamples a crop of two
/// columns differently. Rows need none: libjpeg keeps the row above and reads ahead below.
constexpr std::int32_t kMargin = 2;

using Context = JpegContext;

/// Numbers of images by route.
std::atomic<std::uint64_t> g_counts[kJpegRoutes];

void count_route(const Context& context) {
  if (!context.is_check)
    g_counts[static_cast<std::size_t>(context.route)].fetch_add(1, std::memory_order_relaxed);
}

/// Leaves by longjmp with an error of two lines: the defect, and the remedy.
[[noreturn]] void leave(j_common_ptr codec, const char* text) {
  Context& context = context_of(codec);
  if (context.hooked) std::longjmp(context.escape, Context::irregular);
  std::snprintf(context.message, context.message_size, "jpeg: %s", text);
  std::longjmp(context.escape, Context::failed);
}
[[noreturn]] void leave(jpeg_decompress_struct& codec, const char* text) {
  leave(reinterpret_cast<j_common_ptr>(&codec), text);
}

[[noreturn]] void on_error(j_common_ptr codec) {
  if (codec->err->msg_code == JERR_BAD_PRECISION)
    leave(codec,
          "samples of other than 8 bits are not supported\nconvert it to 8 bits per channel");
  char text[JMSG_LENGTH_MAX];
  codec->err->format_message(codec, text);
  leave(codec, text);
}

/// Returns whether a warning leaves the pixels intact.
bool is_harmless(const jpeg_error_mgr& errors) {
  switch (errors.msg_code) {
    case JWRN_ADOBE_XFORM:
    case JWRN_BOGUS_ICC:
    case JWRN_JFIF_MAJOR:
      return true;
    // Padding between the last pixel and the end marker, which cameras write.
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

/// Replaces libjpeg's handler of APP1: reads EXIF's orientation in place, without a copy.
::boolean on_app1(j_decompress_ptr codec) {
  jpeg_source_mgr& source = *codec->src;
  const std::uint8_t* bytes = source.next_input_byte;
  constexpr std::size_t kLength = 2;
  if (source.bytes_in_buffer < kLength) leave(*codec, "Premature end of JPEG file");
  const std::size_t length = bytes[0] * 256u + bytes[1];
  if (length < kLength) leave(*codec, "Bogus marker length");
  constexpr char kExif[] = "Exif\0";  // and a second zero
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

/// Replaces libjpeg's allocator: has memory for the tables of an image.
void* allocate(j_common_ptr codec, int pool, std::size_t size) {
  JpegTables& tables = context_of(codec).tables;
  static_assert(sizeof(JQUANT_TBL) != sizeof(JHUFF_TBL));
  if (pool == JPOOL_PERMANENT && size == sizeof(JQUANT_TBL) &&
      tables.quantizations < NUM_QUANT_TBLS)
    return &tables.quantization[tables.quantizations++];
  if (pool == JPOOL_PERMANENT && size == sizeof(JHUFF_TBL) && tables.huffmans < 2 * NUM_HUFF_TBLS)
    return &tables.huffman[tables.huffmans++];
  return tables.allocate(codec, pool, size);
}

void forget_tables(JpegContext& context) {
  for (JQUANT_TBL*& table : context.codec.quant_tbl_ptrs) table = nullptr;
  for (JHUFF_TBL*& table : context.codec.dc_huff_tbl_ptrs) table = nullptr;
  for (JHUFF_TBL*& table : context.codec.ac_huff_tbl_ptrs) table = nullptr;
  context.tables.quantizations = context.tables.huffmans = 0;
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
  context->tables.allocate = std::exchange(context->codec.mem->alloc_small, allocate);
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
  context.hooked = false;
}

/// Rejects an image that needs more blocks than the file has bits: a block takes at least one bit
/// for its mean level. Otherwise a header of a few bytes could ask for a gigabyte of coefficients.
/// With this check, memory stays below 1 KiB per byte of the file (bounded-memory contract).
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

/// Parses up to the first scan. Leaves by longjmp on failure.
void start(Context& context, const std::uint8_t* bytes, std::size_t size) {
  jpeg_decompress_struct& codec = context.codec;
  context.orientation = 0;
  forget_tables(context);
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
  context.hooked = false;  // also if memory ran out in the last decode
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

/// Widens the columns to whole columns of blocks; keeps the rows.
void region(void* memory, millrace_decode* request) {
  const auto& context = *static_cast<Context*>(memory);
  const std::int32_t grain = context.grain >> request->scale;
  const std::int32_t width = (context.width + (1 << request->scale) - 1) >> request->scale;
  millrace_rect& rect = request->region;
  rect.x0 = std::max(rect.x0 - kMargin, 0) / grain * grain;
  rect.x1 = std::min(rect.x1 + kMargin, width);
}

/// Returns whether libjpeg smooths the image: if a progressive file lacks the last bits of low
/// frequencies, it guesses them from the neighbouring blocks, which a region does not have.
bool is_smoothed(const jpeg_decompress_struct& codec) {
  constexpr int kGuessed = 10;  // coefficients in zigzag order
  if (!codec.progressive_mode || codec.coef_bits == nullptr) return false;
  for (int i = 0; i < codec.num_components; ++i)
    for (int k = 0; k < kGuessed; ++k)
      if (codec.coef_bits[i][k] != 0) return true;
  return false;
}

/// Returns whether a scaled crop has the right pixels. libjpeg-turbo before 3.0 miscounts the
/// columns of a cropped component if part of its upsampling is done by a larger inverse DCT (scaled
/// images only) and the rest by an upsampler, as with 4x2.
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
    constexpr JDIMENSION kRows = 4;  // libjpeg writes at most four rows at a time
    JSAMPROW rows[kRows];
    const JDIMENSION count = std::min(kRows, end - codec.output_scanline);
    for (JDIMENSION i = 0; i < count; ++i)
      rows[i] = pixels + (codec.output_scanline - begin + i) * row_bytes;
    jpeg_read_scanlines(&codec, rows, count);
  }
}

/// Reads rows of which only a part is requested, or whose colours libjpeg does not convert.
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

/// Returns the columns of MCUs that a crop needs, as jpeg_crop_scanline() chooses them.
McuColumns columns_of(const jpeg_decompress_struct& codec, JDIMENSION left) {
#if JPEG_LIB_VERSION >= 70
  const int block = codec.min_DCT_h_scaled_size;
#else
  const int block = codec.min_DCT_scaled_size;
#endif
  const auto grain =
      static_cast<JDIMENSION>(block * (codec.num_components == 1 ? 1 : codec.max_h_samp_factor));
  return {left / grain, (left + codec.output_width - 1) / grain};
}

/// Decodes the image whose header was parsed. Leaves by longjmp on failure.
void decode_pixels(Context& context, const millrace_decode& request, bool may_take_over,
                   std::uint8_t* pixels, std::size_t row_bytes) {
  jpeg_decompress_struct& codec = context.codec;
  const bool is_cmyk = codec.jpeg_color_space == JCS_CMYK || codec.jpeg_color_space == JCS_YCCK;
  codec.out_color_space = is_cmyk ? JCS_CMYK : request.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  codec.dct_method = JDCT_ISLOW;
  codec.do_fancy_upsampling = TRUE;
  codec.scale_num = 1;
  codec.scale_denom = 1u << request.scale;
  const bool spared = may_take_over && spare_tables(context);
  context.hooked = spared;  // with its own tables, libjpeg may report another error first
  jpeg_start_decompress(&codec);
  if (spared) restore_tables(context);

  const millrace_rect& rect = request.region;
  auto left = static_cast<JDIMENSION>(rect.x0);
  auto width = static_cast<JDIMENSION>(rect.x1 - rect.x0);
  const bool in_parts = !is_smoothed(codec) && (request.scale == 0 || crops_well_scaled(codec));
  if (in_parts)
    jpeg_crop_scanline(&codec, &left, &width);
  else
    left = 0;
  context.route =
      may_take_over ? take_over(context, columns_of(codec, left)) : JpegRoute::irregular;
  context.hooked = context.route == JpegRoute::own;
  if (spared && !context.hooked) std::longjmp(context.escape, Context::irregular);
  if (in_parts) jpeg_skip_scanlines(&codec, static_cast<JDIMENSION>(rect.y0));
  const std::size_t column = static_cast<std::size_t>(rect.x0) - left;
  if (is_cmyk || !in_parts || column != 0 ||
      codec.output_width != static_cast<JDIMENSION>(rect.x1 - rect.x0)) {
    context.row.reserve(std::size_t{codec.output_width} *
                        static_cast<std::size_t>(codec.output_components));
    read_through_row(context, request, column, pixels, row_bytes);
  } else {
    read_in_place(codec, static_cast<JDIMENSION>(rect.y1), pixels, row_bytes);
  }
  if (codec.output_scanline == codec.output_height)
    jpeg_finish_decompress(&codec);  // reads up to the end marker, which reveals a file cut short
  else
    jpeg_abort_decompress(&codec);
  context.hooked = false;
}

millrace_status decode(void* memory, const std::uint8_t* bytes, std::size_t size,
                       const millrace_decode* request, std::uint8_t* pixels, std::size_t row_bytes,
                       millrace_call* call) {
  auto& context = *static_cast<Context*>(memory);
  context.message = call->error;
  context.message_size = call->error_size;
  context.route = JpegRoute::asked;
  context.hooked = false;
  switch (setjmp(context.escape)) {
    case 0:
      if (context.parsed != bytes || context.parsed_size != size) {
        if (context.parsed != nullptr) abort(context);
        start(context, bytes, size);
      }
      context.parsed = nullptr;
      decode_pixels(context, *request, true, pixels, row_bytes);
      break;
    case Context::irregular:  // pixels may have been written; all of them are written again
      abort(context);
      context.route = JpegRoute::irregular;
      start(context, bytes, size);
      context.parsed = nullptr;
      decode_pixels(context, *request, false, pixels, row_bytes);
      break;
    default:
      if (context.route == JpegRoute::irregular) count_route(context);
      abort(context);
      return MILLRACE_BAD_DATA;
  }
  count_route(context);
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

constexpr millrace_plugin_table kTable{MILLRACE_MAGIC,     MILLRACE_ABI_MAJOR,
                                       MILLRACE_ABI_MINOR, sizeof(millrace_plugin_table),
                                       "decoders",         "1.0",
                                       "Apache-2.0",       kUnits,
                                       std::size(kUnits)};

const plugins::BuiltIn kRegistered{kTable};

}  // namespace

const millrace_unit& jpeg_decoder() { return kJpeg; }

void use_libjpeg(void* context, bool always) {
  static_cast<Context*>(context)->only_libjpeg = always;
}

JpegCounts jpeg_counts() {
  JpegCounts counts;
  for (std::size_t i = 0; i < counts.size(); ++i)
    counts[i] = g_counts[i].load(std::memory_order_relaxed);
  return counts;
}

std::string_view name_of(JpegRoute route) {
  constexpr std::string_view kNames[] = {"own",        "asked", "unavailable", "scans",
                                         "arithmetic", "inks",  "irregular"};
  static_assert(std::size(kNames) == kJpegRoutes);
  return kNames[static_cast<std::size_t>(route)];
}

std::string jpeg_summary(const JpegCounts& counts) {
  constexpr const char* kWhy[] = {"",
                                  "decode.jpeg=libjpeg",
                                  "not available here",
                                  "several scans (progressive)",
                                  "arithmetic coding",
                                  "four components (CMYK)",
                                  "irregular data"};
  static_assert(std::size(kWhy) == kJpegRoutes);
  std::uint64_t all = 0;
  for (const std::uint64_t number : counts) all += number;
  if (all == 0) return "";
  std::string text =
      fmt::format("{:.1f}% of {} JPEG images by millrace's Huffman decoder",
                  100. * static_cast<double>(counts[0]) / static_cast<double>(all), all);
  for (std::size_t i = 1; i < counts.size(); ++i)
    if (counts[i] > 0) text += fmt::format("; {} by libjpeg-turbo: {}", counts[i], kWhy[i]);
  return text;
}

}  // namespace millrace::pipeline
