// Baseline JPEG through libjpeg-turbo, with its errors as exceptions.
#include "tools/data/jpeg_writer.h"

#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

// clang-format off: jpeglib.h uses FILE and size_t without including them, so it comes later.
#include <jpeglib.h>
// clang-format on

#include "millrace/error.h"

namespace millrace::tools {
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

}  // namespace millrace::tools
