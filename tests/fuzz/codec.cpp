// Fuzzes one image format of the plugin imgcodecs, named by MILLRACE_FUZZ_FORMS (png_forms,
// tiff_forms or webp_forms): the header and the pixels, as colours, as gray and as they are stored.
// Damage must not affect
// the next image.
#include <fmt/format.h>

#include "pipeline/decoders/decoder.h"
#include "tests/data/image_forms.h"
#include "tests/fuzz/target.h"

namespace millrace::fuzz {
namespace {

constexpr std::uint64_t kPixelLimit = 20'000;

Bytes pixels_of(const ImageView& image) {
  Bytes pixels;
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x)
      for (int c = 0; c < image.channels; ++c)
        pixels.insert(pixels.end(), image.at(x, y, c), image.at(x, y, c) + bytes_of(image.depth));
  return pixels;
}

/// A sound image and its pixels, to check that the decoder still works.
struct Sound {
  Bytes file = test::MILLRACE_FUZZ_FORMS({5, 4}).front().file;
  Bytes pixels = decoded();

  Bytes decoded() const {
    pipeline::DecodeScratch scratch;
    return decoded(scratch);
  }
  Bytes decoded(pipeline::DecodeScratch& scratch) const {
    return pixels_of(scratch.decode(file, 3, kPixelLimit));
  }
};

}  // namespace

Corpus corpus() {
  Corpus corpus;
  for (const test::Form& form : test::MILLRACE_FUZZ_FORMS({17, 9}))
    corpus.seeds.push_back(form.file);
  corpus.tokens = {"IHDR", "PLTE", "tRNS", "IDAT", "IEND", "eXIf", "RIFF", "WEBP", "VP8 ",
                   "VP8L", "VP8X", "ALPH", "ANIM", "ANMF", "ICCP", "II*",  "MM"};
  return corpus;
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  static const fuzz::Sound sound;
  pipeline::DecodeScratch scratch;
  fuzz::accepts(Exit::data, [&] {
    const pipeline::EncodedImage image = scratch.open({data, size}, fuzz::kPixelLimit);
    fuzz::require(image.size.width > 0 && image.size.height > 0, "an image has pixels");
    const Rect whole{0, 0, image.size.width, image.size.height};
    for (const int channels : {1, 3})
      fuzz::accepts(Exit::data, [&] { fuzz::pixels_of(scratch.decode(channels, whole)); });
    fuzz::pixels_of(scratch.decode(image.bands, whole, 0, Depth::f32));
  });
  fuzz::require(sound.decoded(scratch) == sound.pixels, "damage leaves nothing behind");
  return 0;
}
