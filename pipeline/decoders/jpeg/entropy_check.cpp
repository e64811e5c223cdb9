// Checks once per process that EntropyDecoder works behind the libjpeg that is loaded.
#include <cstdlib>
#include <cstring>

#include "pipeline/decoders/jpeg/entropy_hook.h"

namespace millrace::pipeline {
namespace {

/// A picture of the check: its components, and what the first of them has more samples of.
struct Sampling {
  int components, across, down;
  unsigned restart_interval;
};
constexpr Sampling kSamplings[] = {
    {3, 1, 1, 0}, {3, 2, 1, 0}, {3, 2, 2, 0}, {1, 1, 1, 0}, {3, 2, 2, 3}};
constexpr int kWidth = 52, kHeight = 40;  // not whole blocks, and several rows of MCUs

struct Encoder {
  jpeg_compress_struct codec{};
  jpeg_error_mgr errors{};
  std::jmp_buf escape;
  unsigned char* file = nullptr;
  unsigned long size = 0;

  Encoder() = default;
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;
  ~Encoder() {
    jpeg_destroy_compress(&codec);
    std::free(file);
  }
};

void leave_encoder(j_common_ptr codec) {
  std::longjmp(static_cast<Encoder*>(codec->client_data)->escape, 1);
}
void say_nothing(j_common_ptr, int) {}

/// Encodes a picture with edges, slopes and noise. Returns false if libjpeg cannot.
bool encode(Encoder& encoder, const Sampling& sampling) {
  jpeg_compress_struct& codec = encoder.codec;
  codec.err = jpeg_std_error(&encoder.errors);
  encoder.errors.error_exit = leave_encoder;
  encoder.errors.emit_message = say_nothing;
  codec.client_data = &encoder;
  if (setjmp(encoder.escape) != 0) return false;
  jpeg_create_compress(&codec);
  jpeg_mem_dest(&codec, &encoder.file, &encoder.size);
  codec.image_width = kWidth;
  codec.image_height = kHeight;
  codec.input_components = sampling.components;
  codec.in_color_space = sampling.components == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&codec);
  jpeg_set_quality(&codec, 90, TRUE);
  codec.comp_info[0].h_samp_factor = sampling.across;
  codec.comp_info[0].v_samp_factor = sampling.down;
  codec.restart_interval = sampling.restart_interval;
  jpeg_start_compress(&codec, TRUE);
  std::uint32_t noise = 1;
  while (codec.next_scanline < codec.image_height) {
    std::uint8_t samples[kWidth * 3];
    for (int i = 0; i < kWidth * sampling.components; ++i) {
      noise = noise * 1664525 + 1013904223;
      const int slope = i + static_cast<int>(codec.next_scanline) * 3;
      samples[i] = static_cast<std::uint8_t>(slope + static_cast<int>(noise >> 27) +
                                             (i / 40 % 2 == 0 ? 60 : 0));
    }
    JSAMPROW row = samples;
    jpeg_write_scanlines(&codec, &row, 1);
  }
  jpeg_finish_compress(&codec);
  return true;
}

/// A context of the decoder, and what it makes of a file.
class Trial {
 public:
  explicit Trial(bool only_libjpeg) {
    if (context_ == nullptr) return;
    context().is_check = true;
    context().only_libjpeg = only_libjpeg;
  }
  ~Trial() {
    if (context_ != nullptr) functions().close(context_);
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  /// Decodes a part of the file. Returns false if that fails or another route is taken.
  bool decode(const Encoder& file, const millrace_rect& rect, JpegRoute route) {
    char message[JMSG_LENGTH_MAX + 8];
    millrace_call call{};
    call.error = message;
    call.error_size = sizeof message;
    millrace_image_header header{};
    millrace_decode request{sizeof request, 3, 0, rect};
    return context_ != nullptr &&
           functions().header(context_, file.file, file.size, &header, &call) == MILLRACE_OK &&
           functions().decode(context_, file.file, file.size, &request, pixels_, kWidth * 3,
                              &call) == MILLRACE_OK &&
           context().route == route;
  }
  bool operator==(const Trial& other) const {
    return std::memcmp(pixels_, other.pixels_, sizeof pixels_) == 0;
  }

 private:
  static const millrace_decoder& functions() { return *jpeg_decoder().decoder; }
  JpegContext& context() { return *static_cast<JpegContext*>(context_); }

  void* context_ = functions().open(nullptr);
  std::uint8_t pixels_[kWidth * kHeight * 3] = {};
};

/// Returns why the check failed; empty if it succeeded.
const char* check() {
#if !defined(LIBJPEG_TURBO_VERSION)
  return "millrace was not built with libjpeg-turbo";
#else
  for (const Sampling& sampling : kSamplings) {
    Encoder file;
    if (!encode(file, sampling)) return "libjpeg cannot encode the self-test images";
    // The whole picture, and its last rows without the first columns.
    for (const millrace_rect& rect :
         {millrace_rect{0, 0, kWidth, kHeight}, millrace_rect{32, 34, kWidth, kHeight}}) {
      Trial expected(true), found(false);
      if (!expected.decode(file, rect, JpegRoute::asked))
        return "libjpeg cannot decode the self-test images";
      if (!found.decode(file, rect, JpegRoute::own))
        return "libjpeg's Huffman decoder is not where it is in libjpeg-turbo 2.1";
      if (found != expected) return "the self-test images decoded differently";
    }
  }
  return "";
#endif
}

}  // namespace

const char* why_libjpeg() {
  static const char* const why = check();
  return why;
}

}  // namespace millrace::pipeline
