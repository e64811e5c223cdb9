// Fuzzes the headers of raw images, as they are and with their checksum put right, so that
// mutations get past it, and the decoder behind them.
#include "pipeline/decoders/raw_image.h"

#include "millrace/limits.h"
#include "pipeline/decoders/decoder.h"
#include "tests/fuzz/target.h"

namespace millrace::fuzz {
namespace {

void check(std::span<const std::uint8_t> bytes) {
  const bool sound = accepts(Exit::data, [&] {
    const pipeline::RawImage image = pipeline::parse_raw(bytes);
    const std::size_t pixels = static_cast<std::size_t>(image.size.width) *
                               static_cast<std::size_t>(image.size.height) *
                               static_cast<std::size_t>(image.channels * bytes_of(image.depth));
    require(image.pixels + pixels == bytes.data() + bytes.size(), "the pixels fill the file");
  });
  if (!sound) return;
  accepts(Exit::data, [&] { pipeline::check_raw_pixels(bytes); });
  pipeline::DecodeScratch decode;
  const pipeline::EncodedImage& image = decode.open(bytes, kMaxPixels);
  const Rect whole{0, 0, image.size.width, image.size.height};
  accepts(Exit::data, [&] { decode.decode(image.bands, whole, 0, Depth::f32); });
  if (image.depth != Depth::u8 || (image.bands != 1 && image.bands != 3)) return;
  for (const int channels : {1, 3}) {
    const ImageView view = decode.decode(bytes, channels, kMaxPixels);
    const std::uint8_t last = *view.at(view.width - 1, view.height - 1, channels - 1);
    require(channels == 3 || decode.image().channels == 3 || last == bytes.back(),
            "the last pixel of a gray image is the last byte");
  }
}

}  // namespace

Corpus corpus() {
  const Bytes pixels(5 * 4 * 3, 9);
  return {{pipeline::to_raw(interleaved(pixels.data(), {5, 4}, 3)),
           pipeline::to_raw(interleaved(pixels.data(), {5, 4}, 1)),
           pipeline::to_raw(interleaved(pixels.data(), {1, 1}, 1)),
           pipeline::to_raw(interleaved(pixels.data(), {5, 4}, 1, Depth::u16)),
           pipeline::to_raw(interleaved(pixels.data(), {5, 1}, 3, Depth::f32))},
          {"MRPIX", std::string(4, '\0'), std::string(4, '\xff'), std::string("\3\0\0\0", 4)}};
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  fuzz::check({data, size});
  fuzz::Bytes sealed(data, data + size);
  pipeline::seal_raw_header(sealed);
  fuzz::check(sealed);
  return 0;
}
