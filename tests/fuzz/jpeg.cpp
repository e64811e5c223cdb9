// Fuzzes JPEG: the header, then a part of the image at a scale, both drawn from the bytes. A
// decoded part must equal the same part of the whole image, and damage must not affect the next
// image.
#include <algorithm>

#include "pipeline/decoders/decoder.h"
#include "tests/data/jpeg_forms.h"
#include "tests/fuzz/target.h"

namespace millrace::fuzz {
namespace {

constexpr std::uint64_t kPixelLimit = 20'000;

/// A sound image and its pixels, to check that the decoder still works.
struct Sound {
  Bytes file = test::jpeg({16, 16}, {}, test::noise({16, 16}));
  Bytes pixels = decoded();

  Bytes decoded() const {
    pipeline::DecodeScratch scratch;
    return decoded(scratch);
  }
  Bytes decoded(pipeline::DecodeScratch& scratch) const {
    return test::pixels_of(scratch.decode(file, 3, kPixelLimit));
  }
};

void draw_span(int side, Draw& draw, std::int32_t& begin, std::int32_t& end) {
  begin = static_cast<int>(draw.integer(static_cast<std::uint32_t>(side)));
  end = begin + 1 + static_cast<int>(draw.integer(static_cast<std::uint32_t>(side - begin)));
  if (draw.chance(.3)) begin = 0, end = side;
}

void decode_part(pipeline::DecodeScratch& scratch, std::span<const std::uint8_t> bytes) {
  const pipeline::EncodedImage image = scratch.open(bytes, kPixelLimit);
  require(image.size.width > 0 && image.size.height > 0, "an image has pixels");
  Draw draw(base::stream({1, 0, bytes.size()},
                         base::op_id({reinterpret_cast<const char*>(bytes.data()), bytes.size()})));
  const int channels = draw.chance(.5) ? 3 : 1;
  std::uint32_t scale = draw.integer(4);
  if ((image.scales >> scale & 1) == 0) scale = 0;
  const auto scaled = [&](int side) { return (side + (1 << scale) - 1) >> scale; };
  Rect rect;
  draw_span(scaled(image.size.width), draw, rect.x0, rect.x1);
  draw_span(scaled(image.size.height), draw, rect.y0, rect.y1);
  const Bytes part = test::pixels_of(scratch.decode(channels, rect, static_cast<int>(scale)), rect);
  const Rect all{0, 0, scaled(image.size.width), scaled(image.size.height)};
  Bytes same;
  // Damage outside the part may show only here.
  if (accepts(Exit::data, [&] {
        same = test::pixels_of(scratch.decode(channels, all, static_cast<int>(scale)), rect);
      }))
    require(part == same, "a part's pixels are the whole image's");
}

}  // namespace

Corpus corpus() {
  using test::JpegForm;
  Corpus corpus;
  for (const JpegForm& form :
       {JpegForm{}, JpegForm{JCS_YCbCr, true}, JpegForm{.restart_blocks = 2},
        JpegForm{.h = 4, .v = 2}, JpegForm{.h = 1, .v = 1}, JpegForm{JCS_GRAYSCALE, false, 0, 1, 1},
        JpegForm{JCS_YCCK}, JpegForm{JCS_RGB, false, 0, 1, 1}, JpegForm{.arithmetic = true},
        JpegForm{.app1 = test::exif(5, true, 3)}, JpegForm{JCS_YCbCr, true, 0, 2, 1}})
    corpus.seeds.push_back(test::jpeg({40, 24}, form, test::noise({40, 24})));
  corpus.seeds.push_back(test::jpeg({100, 3}, {}, test::ramp({100, 3})));
  for (const int marker : {0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc9, 0xca, 0xcc, 0xd0, 0xd8, 0xd9, 0xda,
                           0xdb, 0xdc, 0xdd, 0xe0, 0xe1, 0xee, 0xfe})
    corpus.tokens.push_back({'\xff', static_cast<char>(marker)});
  corpus.tokens.insert(corpus.tokens.end(), {"Adobe", "JFIF", std::string("Exif\0\0", 6)});
  return corpus;
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  static const fuzz::Sound sound;
  if (size < 2 || data[0] != 0xff || data[1] != 0xd8) return 0;  // formats of other decoders
  pipeline::DecodeScratch scratch;
  fuzz::accepts(Exit::data, [&] { fuzz::decode_part(scratch, {data, size}); });
  fuzz::require(sound.decoded(scratch) == sound.pixels, "damage leaves nothing behind");
  return 0;
}
