// Runs random chains of ops on JPEGs: every SIMD level, with region decoding and without it, gives
// the bytes of the scalar level on images that were decoded whole (determinism contract).
#include <gtest/gtest.h>

#include "pipeline/decoders/decoder.h"
#include "tests/augment/fenced_source.h"
#include "tests/augment/random_chain.h"
#include "tests/data/jpeg_forms.h"
#include "tests/generated_cases.h"

namespace millrace::pipeline {
namespace {

using test::Bytes;

constexpr std::uint64_t kNoLimit = 1'000'000'000;

class Decoded final : public PixelSource {
 public:
  Decoded(const Bytes& file, int channels) : channels_(channels) { scratch_.open(file, kNoLimit); }
  Size size() const override { return scratch_.image().size; }
  bool serves_regions() const override { return true; }
  ImageView pixels(const Rect& region, int scale) override {
    return scratch_.decode(channels_, region, scale);
  }

 private:
  DecodeScratch scratch_;
  int channels_;
};

struct Photo {
  Bytes file;
  Size size;  ///< upright
};

std::vector<Photo> photos() {
  std::vector<Photo> all;
  const auto add = [&](Size stored, const test::JpegForm& form, bool turned = false) {
    all.push_back({test::jpeg(stored, form, test::noise(stored)),
                   turned ? Size{stored.height, stored.width} : stored});
  };
  add({131, 117}, {});
  add({160, 96}, {.progressive = true, .app1 = test::exif(6)}, true);
  add({90, 140}, {.stored = JCS_GRAYSCALE, .app1 = test::exif(3)});
  add({77, 64}, {.restart = 1, .h = 1, .v = 1, .app1 = test::exif(2)});
  return all;
}

void compare(std::uint64_t number, const Photo& photo, test::FencedMemory& memory,
             test::FaultNote& note) {
  Draw draw(base::stream({13, 0, number}, base::op_id("chains")));
  const auto ops = test::random_chain(5000 + number, photo.size);
  const Source source{photo.size, draw.chance(.75) ? 3 : 1};
  const OutputOptions output = draw.chance(.5) ? OutputOptions{DType::u8, Layout::hwc, {0}, {1}}
                                               : OutputOptions{DType::f32, Layout::chw, {.4}, {.2}};
  PlanOptions options(draw.chance(.7) ? Resample::once : Resample::stepwise);
  test::PlannedChain in_parts(ops, source, output, options);
  options.region = false;
  test::PlannedChain whole(ops, source, output, options);
  Decoded decoded(photo.file, source.channels);
  const Bytes expected = whole.run(number, decoded, base::Simd::scalar);
  for (const base::Simd level : test::simd_levels()) {
    const std::string what = fmt::format("chain {} by {}, {} channels: {}", number,
                                         base::name_of(level), source.channels, test::to_text(ops));
    note.set(what);
    ASSERT_TRUE(whole.run(number, decoded, level) == expected) << what << ", decoded whole";
    ASSERT_TRUE(in_parts.run(number, decoded, level) == expected) << what << ", in parts";
    for (const bool at_front : {true, false}) {
      test::FencedSource fenced(decoded, memory, {at_front, 0x5A});
      ASSERT_TRUE(in_parts.run(number, fenced, level) == expected) << what << ", fenced";
    }
  }
}

TEST(Chains, AreTheSameAtEveryLevelDecodedInPartsOrWhole) {
  constexpr int kChains = test::generated_cases(400);
  const std::vector<Photo> all = photos();
  test::FencedMemory memory;
  test::FaultNote note;
  for (std::uint64_t number = 0; number < kChains; ++number)
    ASSERT_NO_FATAL_FAILURE(compare(number, all[number % all.size()], memory, note));
}

}  // namespace
}  // namespace millrace::pipeline
