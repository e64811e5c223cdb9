// Decodes, resizes and encodes images.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "millrace/limits.h"
#include "millrace/plan.h"
#include "pipeline/decoders/decoder.h"
#include "pipeline/decoders/npy_image.h"
#include "pipeline/decoders/raw_image.h"
#include "tools/data/data.h"

// clang-format off: jpeglib.h uses FILE and size_t without including them, so it comes later.
#include <jpeglib.h>

// clang-format on
#include "millrace/error.h"

namespace millrace::tools {

// Baseline JPEG through libjpeg-turbo, with its errors as exceptions.

namespace {

struct Encoder {
  jpeg_compress_struct codec{};
  jpeg_error_mgr errors{};
  std::jmp_buf escape;
  char message[JMSG_LENGTH_MAX] = {};
  unsigned char* out = nullptr;
  unsigned long out_size = 0;

  ~Encoder() {
    jpeg_destroy_compress(&codec);
    std::free(out);  // allocated by libjpeg
  }
};

[[noreturn]] void on_error(j_common_ptr codec) {
  auto& encoder = *static_cast<Encoder*>(codec->client_data);
  codec->err->format_message(codec, encoder.message);
  std::longjmp(encoder.escape, 1);
}

/// Returns false after an error. Separate from encode_jpeg(), so that longjmp skips no object's
/// destructor.
bool run(Encoder& encoder, const std::uint8_t* pixels, Size size, int quality) {
  jpeg_compress_struct& codec = encoder.codec;
  codec.err = jpeg_std_error(&encoder.errors);
  encoder.errors.error_exit = on_error;
  codec.client_data = &encoder;
  if (setjmp(encoder.escape) != 0) return false;

  jpeg_create_compress(&codec);
  jpeg_mem_dest(&codec, &encoder.out, &encoder.out_size);
  codec.image_width = static_cast<JDIMENSION>(size.width);
  codec.image_height = static_cast<JDIMENSION>(size.height);
  codec.input_components = 3;
  codec.in_color_space = JCS_RGB;
  jpeg_set_defaults(&codec);  // 4:2:0
  jpeg_set_quality(&codec, quality, TRUE);
  jpeg_start_compress(&codec, TRUE);
  while (codec.next_scanline < codec.image_height) {
    auto* row =
        const_cast<JSAMPROW>(pixels + std::size_t{codec.next_scanline} * 3 * codec.image_width);
    jpeg_write_scanlines(&codec, &row, 1);
  }
  jpeg_finish_compress(&codec);
  return true;
}

}  // namespace

std::vector<std::uint8_t> encode_jpeg(std::span<const std::uint8_t> pixels, Size size,
                                      int quality) {
  Encoder encoder;
  if (!run(encoder, pixels.data(), size, quality))
    throw RunError(std::string("jpeg: cannot be encoded: ") + encoder.message);
  return {encoder.out, encoder.out + encoder.out_size};
}

Size shrunk(Size size, const ShrinkOptions& options) {
  double scale = 1;
  if (options.short_side > 0)
    scale = std::min(scale, double(options.short_side) / std::min(size.width, size.height));
  if (options.max_side > 0)
    scale = std::min(scale, double(options.max_side) / std::max(size.width, size.height));
  const auto side = [scale](int length) {
    return std::max(1, static_cast<int>(std::lround(length * scale)));
  };
  return {side(size.width), side(size.height)};
}

namespace {

/// Returns the op `resize` with a fixed size.
OpSpec resize_to(Size size) {
  const auto ops = op_declarations();
  const auto declared =
      std::find_if(ops.begin(), ops.end(), [](const auto& op) { return op.name == "resize"; });
  OpSpec spec{declared->name, declared->name, true, Params(declared->params)};
  spec.params.set("size", std::vector<double>{double(size.height), double(size.width)});
  return spec;
}

}  // namespace

struct Shrinker::State {
  pipeline::DecodeScratch decode;
  std::vector<std::byte> pixels;
};

Shrinker::Shrinker(const ShrinkOptions& options)
    : options_(options), state_(std::make_unique<State>()) {}
Shrinker::~Shrinker() = default;

std::vector<std::uint8_t> Shrinker::run(std::span<const std::uint8_t> bytes) {
  const pipeline::EncodedImage& header = state_->decode.open(bytes, kMaxPixels);
  const Size before = header.size;
  const Size after = shrunk(before, options_);
  const bool same_size = after == before;
  const bool is_array = header.decoder == &pipeline::npy_decoder();
  const bool is_raw = header.decoder == &pipeline::raw_decoder();
  const bool has_levels = !is_array && header.depth != Depth::f32 &&
                          !(is_raw && header.depth != Depth::u8) &&
                          (header.bands == 1 || header.bands == 3);
  if (!has_levels && !same_size)
    throw DataError(
        fmt::format("{}: only gray and RGB images of levels are resized", header.decoder->name),
        "leave out the options that resize");
  if (is_array || (!has_levels && options_.raw && !is_raw))
    return pipeline::to_raw(
        state_->decode.decode(header.bands, {0, 0, before.width, before.height}, 0, Depth::f32));
  if (same_size && (!options_.raw || is_raw)) return {bytes.begin(), bytes.end()};
  constexpr int kColours = 3;
  const int channels = options_.raw ? header.channels : kColours;
  const ImageView image = state_->decode.decode(channels, {0, 0, before.width, before.height});
  if (same_size) return pipeline::to_raw(image);
  OutputOptions output;
  output.dtype = DType::u8;
  output.layout = Layout::hwc;
  const auto transform = compile_plan({resize_to(after)}, {before, channels}, output);
  state_->pixels.resize(transform->output().bytes() + kTailSlack);
  const auto scratch = transform->make_scratch();
  WholeImage source(image);
  transform->run({}, source, state_->pixels.data(), *scratch);
  const auto* pixels = reinterpret_cast<const std::uint8_t*>(state_->pixels.data());
  if (options_.raw) return pipeline::to_raw(interleaved(pixels, after, channels));
  return encode_jpeg({pixels, transform->output().bytes()}, after, options_.quality);
}

}  // namespace millrace::tools
