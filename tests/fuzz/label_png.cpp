// Fuzzes the PNG files of masks, as they are and with the checksums of their chunks put right.
#include "pipeline/decoders/label_png.h"

#include <zlib.h>

#include "tests/data/png_file.h"
#include "tests/fuzz/target.h"

namespace millrace::fuzz {
namespace {

constexpr std::uint64_t kPixelLimit = 20'000;

/// Returns the file with the right checksum behind each chunk.
Bytes repaired(Bytes file) {
  for (std::size_t at = 8; at + 12 <= file.size();) {
    std::size_t size = 0;
    for (std::size_t i = 0; i < 4; ++i) size = size << 8 | file[at + i];
    if (size > file.size() - at - 12) break;
    const auto sum =
        static_cast<std::uint32_t>(crc32(0, file.data() + at + 4, static_cast<uInt>(size + 4)));
    for (std::size_t i = 0; i < 4; ++i)
      file[at + 8 + size + i] = static_cast<std::uint8_t>(sum >> (24 - 8 * i));
    at += 12 + size;
  }
  return file;
}

Bytes ids_of(pipeline::LabelPng& png, const Bytes& file, int divisor) {
  png.open(file, kPixelLimit);
  const Size size = png.size();
  require(size.width > 0 && size.height > 0 &&
              std::uint64_t(size.width) * std::uint64_t(size.height) <= kPixelLimit,
          "a mask has pixels, and no more than allowed");
  const int rows = (size.height + divisor - 1) / divisor;
  const ImageView view = png.pixels({0, 0, size.width, rows}, 0);
  Bytes ids;
  for (int y = 0; y < rows; ++y)
    for (int x = 0; x < size.width; ++x) ids.push_back(*view.at(x, y));
  return ids;
}

}  // namespace

Corpus corpus() {
  const Bytes rows = test::idx_images(1, 40, 40);
  Corpus corpus;
  for (const int filters : {PNG_FILTER_NONE, PNG_FILTER_SUB, PNG_FILTER_UP, PNG_FILTER_AVG,
                            PNG_FILTER_PAETH, PNG_ALL_FILTERS})
    corpus.seeds.push_back(test::label_png({31, 20}, rows, {.filters = filters}));
  for (const int depth : {1, 2, 4, 8})
    corpus.seeds.push_back(test::label_png({31, 20}, rows, {PNG_COLOR_TYPE_PALETTE, depth}));
  corpus.tokens = {"IHDR", "PLTE", "IDAT", "IEND", "tEXt"};
  return corpus;
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  static pipeline::LabelPng png;
  static const fuzz::Bytes sound = fuzz::corpus().seeds[5];
  static const fuzz::Bytes ids = fuzz::ids_of(png, sound, 1);
  for (const fuzz::Bytes& file :
       {fuzz::Bytes(data, data + size), fuzz::repaired({data, data + size})}) {
    fuzz::Bytes all;
    if (!fuzz::accepts(Exit::data, [&] { all = fuzz::ids_of(png, file, 1); })) continue;
    const fuzz::Bytes upper = fuzz::ids_of(png, file, 2);
    fuzz::require(std::equal(upper.begin(), upper.end(), all.begin()),
                  "the upper rows are those of the whole mask");
  }
  fuzz::require(fuzz::ids_of(png, sound, 1) == ids, "damage leaves nothing behind");
  return 0;
}
