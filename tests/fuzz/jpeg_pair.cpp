// Fuzzes millrace's Huffman decoder beside libjpeg-turbo alone: a part of the image at a scale,
// both drawn from the bytes, must come out with the same pixels or the same error.
#include "pipeline/decoders/decoder.h"
#include "tests/data/jpeg_forms.h"
#include "tests/data/jpeg_writer.h"
#include "tests/fuzz/target.h"

namespace millrace::fuzz {
namespace {

constexpr std::uint64_t kPixelLimit = 20'000;

struct Outcome {
  std::string error;
  Bytes pixels;
  bool operator==(const Outcome&) const = default;
};

void draw_span(int side, Draw& draw, std::int32_t& begin, std::int32_t& end) {
  begin = static_cast<int>(draw.integer(static_cast<std::uint32_t>(side)));
  end = begin + 1 + static_cast<int>(draw.integer(static_cast<std::uint32_t>(side - begin)));
  if (draw.chance(.5)) begin = 0, end = side;
}

Outcome decode(pipeline::DecodeScratch& scratch, std::span<const std::uint8_t> bytes) {
  Outcome outcome;
  Draw draw(base::stream({1, 0, bytes.size()},
                         base::op_id({reinterpret_cast<const char*>(bytes.data()), bytes.size()})));
  try {
    const Size size = scratch.open(bytes, kPixelLimit).size;
    const int channels = draw.chance(.7) ? 3 : 1;
    const int scale = draw.chance(.7) ? 0 : static_cast<int>(draw.integer(4));
    const auto scaled = [&](int side) { return (side + (1 << scale) - 1) >> scale; };
    Rect rect;
    draw_span(scaled(size.width), draw, rect.x0, rect.x1);
    draw_span(scaled(size.height), draw, rect.y0, rect.y1);
    outcome.pixels = test::pixels_of(scratch.decode(channels, rect, scale), rect);
  } catch (const DataError& error) {
    outcome.error = error.what() + std::string("\n") + error.hint();
  }
  return outcome;
}

}  // namespace

Corpus corpus() {
  using test::JpegForm;
  Corpus corpus;
  for (const JpegForm& form :
       {JpegForm{}, JpegForm{.restart_blocks = 2}, JpegForm{.h = 4, .v = 2},
        JpegForm{.h = 1, .v = 1, .restart_blocks = 1}, JpegForm{JCS_GRAYSCALE, false, 0, 1, 1},
        JpegForm{JCS_YCbCr, false, 0, 2, 1}})
    corpus.seeds.push_back(test::jpeg({40, 24}, form, test::noise({40, 24})));
  corpus.seeds.push_back(test::jpeg({100, 3}, {}, test::ramp({100, 3})));
  for (std::uint32_t i = 0; i < 12; ++i) {
    Draw draw(base::stream({13, 0, i}, base::op_id("pair")));
    const test::WrittenScan scan = test::random_scan(draw);
    if (scan.data.size() < 4000) corpus.seeds.push_back(test::file_of(scan));
  }
  for (const int marker : {0x00, 0xc0, 0xc1, 0xc4, 0xd0, 0xd1, 0xd7, 0xd9, 0xda, 0xdb, 0xdd, 0xfe})
    corpus.tokens.push_back({'\xff', static_cast<char>(marker)});
  return corpus;
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  if (size < 3 || data[0] != 0xff || data[1] != 0xd8 || data[2] != 0xff) return 0;
  static pipeline::DecodeScratch ours, theirs;  // with what earlier inputs have left in them
  theirs.use_libjpeg(true);
  const fuzz::Outcome expected = fuzz::decode(theirs, {data, size});
  const fuzz::Outcome found = fuzz::decode(ours, {data, size});
  fuzz::require(found.error == expected.error,
                "the error is libjpeg-turbo's: " + expected.error + " and not " + found.error);
  fuzz::require(found.pixels == expected.pixels, "the pixels are libjpeg-turbo's");
  return 0;
}
