// Applies thousands of small damages with a fixed seed: whatever the bytes, a reader or decoder
// delivers or throws DataError. Most useful under AddressSanitizer.
#include <gtest/gtest.h>

#include "base/rng.h"
#include "millrace/exif.hpp"
#include "millrace/reader.h"
#include "pipeline/decoders/decoder.h"
#include "pipeline/readers/manifest_rows.h"
#include "pipeline/readers/tar_index.h"
#include "tests/data/jpeg_forms.h"
#include "tests/data/support.h"
#include "tests/data/tar_builder.h"
#include "tools/data/data.h"

namespace millrace::pipeline {
namespace {

using test::Bytes;
using test::gzip;
using test::idx_images;
using test::idx_labels;
using test::TempFolder;

/// Returns the bytes with one to four changed, and sometimes with the end cut off or something
/// added.
Bytes mutated(Bytes bytes, Draw& draw) {
  for (std::uint32_t changes = 1 + draw.integer(4); changes > 0; --changes) {
    // Half of the damage hits the headers.
    const auto size = static_cast<std::uint32_t>(bytes.size());
    const std::uint32_t at = draw.integer(draw.chance(.5) ? std::min(size, 64u) : size);
    bytes[at] = draw.chance(.2) ? 0xff : static_cast<std::uint8_t>(draw.bits());
  }
  if (draw.chance(.2)) bytes.resize(1 + draw.integer(static_cast<std::uint32_t>(bytes.size())));
  if (draw.chance(.1)) bytes.resize(bytes.size() + 1 + draw.integer(40));
  return bytes;
}

/// Reads every byte of every sample, and the slack behind them.
std::uint64_t sum_of(const Reader& reader) {
  Buffer scratch;
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < reader.info().count; ++i) {
    const Sample sample = reader.read(i, scratch);
    for (std::size_t byte = 0; byte < sample.bytes.size() + kTailSlack; ++byte)
      sum += sample.bytes.data()[byte];
  }
  return sum;
}

struct Outcome {
  int delivered = 0, refused = 0;
};

template <class Call>
void attempt(Outcome& outcome, const Call& call) {
  try {
    call();
    ++outcome.delivered;
  } catch (const DataError&) {
    ++outcome.refused;
  }
}

Outcome mutate_idx(const std::string& ending, const Bytes& images, const Bytes& labels) {
  const TempFolder folder;
  Outcome outcome;
  for (std::uint64_t round = 0; round < 1500; ++round) {
    Draw draw(base::stream({7, 0, round}, base::op_id("mutate_idx")));
    const bool which = draw.chance(.7);
    folder.write("train-images-idx3-ubyte" + ending, which ? mutated(images, draw) : images);
    folder.write("train-labels-idx1-ubyte" + ending, which ? labels : mutated(labels, draw));
    attempt(outcome, [&] { sum_of(*open_reader({"idx", folder.path(), "train", 0})); });
  }
  return outcome;
}

TEST(Mutation, Idx) {
  const Outcome outcome = mutate_idx("", idx_images(5), idx_labels({0, 1, 2, 3, 4}));
  EXPECT_GT(outcome.delivered, 100);
  EXPECT_GT(outcome.refused, 100);
}

TEST(Mutation, IdxGzip) {
  const Outcome outcome = mutate_idx(".gz", gzip(idx_images(5)), gzip(idx_labels({0, 1, 2, 3, 4})));
  EXPECT_GT(outcome.refused, 1000);
}

TEST(Mutation, Tar) {
  test::TarBuilder tar;
  tar.long_name(std::string(110, 'n') + ".jpg").add("x", Bytes(700, 1));
  tar.long_name(std::string(110, 'n') + ".cls").add("x", "1");
  tar.pax("path", "p.jpg").add("x", Bytes(3)).add("p.json", R"({"label": 3})");
  tar.add("q.png", Bytes(5)).add("q.cls", "2").add("q.txt", "text");
  const Bytes whole = tar.end();
  Outcome outcome;
  for (std::uint64_t round = 0; round < 6000; ++round) {
    Draw draw(base::stream({7, 0, round}, base::op_id("mutate_tar")));
    const Bytes bytes = mutated(whole, draw);
    attempt(outcome, [&] {
      const TarIndex index = index_tar("x.tar", bytes);
      for (const TarIndex::Entry& entry : index.samples) {
        ASSERT_LE(entry.data + entry.size, bytes.size());
        tar_name("x.tar", bytes, entry);
      }
    });
  }
  EXPECT_GT(outcome.delivered, 100);
  EXPECT_GT(outcome.refused, 1000);
}

TEST(Mutation, Manifest) {
  const Bytes csv =
      test::bytes_from("path,label,split\na.jpg,1,train\n\"b,c.jpg\",2,\nd.jpg,cat,test\n");
  const Bytes json = test::bytes_from(
      "{\"path\": \"a.jpg\", \"label\": 1}\n{\"path\": \"b\", \"label\": \"x\"}\n");
  Outcome outcome;
  for (std::uint64_t round = 0; round < 6000; ++round) {
    Draw draw(base::stream({7, 0, round}, base::op_id("mutate_manifest")));
    const Bytes bytes = mutated(round % 2 == 0 ? csv : json, draw);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    attempt(outcome, [&] { round % 2 == 0 ? parse_csv("m", text) : parse_jsonl("m", text); });
  }
  EXPECT_GT(outcome.delivered, 500);
  EXPECT_GT(outcome.refused, 500);
}

/// Decodes the header, then a random part at a random scale, and reads every pixel that may be
/// read.
void decode_some(DecodeScratch& scratch, const Bytes& bytes, Draw& draw) {
  const EncodedImage& image = scratch.open(bytes, 100'000);
  const int channels = draw.chance(.5) ? 3 : 1;
  const int scale = image.scales == 1 ? 0 : static_cast<int>(draw.integer(4));
  const auto span = [&](int side, std::int32_t& begin, std::int32_t& end) {
    const int scaled = (side + (1 << scale) - 1) >> scale;
    begin = static_cast<int>(draw.integer(static_cast<std::uint32_t>(scaled)));
    end = begin + 1 + static_cast<int>(draw.integer(static_cast<std::uint32_t>(scaled - begin)));
    if (draw.chance(.3)) begin = 0, end = scaled;
  };
  Rect rect;
  span(image.size.width, rect.x0, rect.x1);
  span(image.size.height, rect.y0, rect.y1);
  const ImageView view = scratch.decode(channels, rect, scale);
  std::uint64_t sum = 0;
  for (int y = rect.y0; y < rect.y1; ++y)
    for (int x = rect.x0; x < rect.x1; ++x)
      for (int c = 0; c < channels; ++c) sum += *view.at(x, y, c);
  EXPECT_LE(sum, 255u * 3 * 100'000);
}

Outcome mutate_image(const Bytes& file, std::uint64_t rounds) {
  DecodeScratch scratch;
  Outcome outcome;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    Draw draw(base::stream({7, 0, round}, base::op_id("mutate_image")));
    const Bytes bytes = mutated(file, draw);
    attempt(outcome, [&] { decode_some(scratch, bytes, draw); });
  }
  return outcome;
}

Bytes noise(std::size_t size) {
  Draw draw(base::stream({7, 0, 0}, base::op_id("noise")));
  Bytes pixels(size);
  for (std::uint8_t& pixel : pixels) pixel = static_cast<std::uint8_t>(draw.bits());
  return pixels;
}

TEST(Mutation, Jpeg) {
  const Outcome outcome = mutate_image(tools::encode_jpeg(noise(3 * 40 * 24), {40, 24}, 80), 3000);
  EXPECT_GT(outcome.delivered, 100);
  EXPECT_GT(outcome.refused, 1000);
}

TEST(Mutation, JpegForms) {
  using test::JpegForm;
  for (const JpegForm& form :
       {JpegForm{JCS_YCbCr, true}, JpegForm{.restart_blocks = 2}, JpegForm{.h = 4, .v = 2},
        JpegForm{JCS_GRAYSCALE}, JpegForm{JCS_YCCK}, JpegForm{.arithmetic = true},
        JpegForm{.app1 = test::exif(5, true, 3)}}) {
    const Size size{40, 24};
    const Outcome outcome = mutate_image(test::jpeg(size, form, test::noise(size)), 500);
    EXPECT_GT(outcome.delivered, 10);
    EXPECT_GT(outcome.refused, 30);
  }
}

TEST(Mutation, ExifDirectory) {
  const Bytes body = test::exif(7, false, 4);
  for (std::uint64_t round = 0; round < 20'000; ++round) {
    Draw draw(base::stream({7, 0, round}, base::op_id("mutate_exif")));
    const Bytes bytes = mutated({body.begin() + 6, body.end()}, draw);
    EXPECT_LE(exif_orientation(bytes.data(), bytes.size()), 8u);
  }
}

TEST(Mutation, BmpThroughThePlugin) {
  Bytes file{'B', 'M', 0, 0,  0, 0, 0, 0, 0, 0, 54, 0, 0, 0, 40,
             0,   0,   0, 16, 0, 0, 0, 8, 0, 0, 0,  1, 0, 24};
  file.resize(54);
  const Bytes pixels = noise(3 * 16 * 8);
  file.insert(file.end(), pixels.begin(), pixels.end());
  const Outcome outcome = mutate_image(file, 200);
  EXPECT_GT(outcome.delivered, 10);
  EXPECT_GT(outcome.refused, 10);
}

}  // namespace
}  // namespace millrace::pipeline
