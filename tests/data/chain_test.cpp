// Random chains of ops on JPEGs: every SIMD level, with region decoding and without it, gives the
// bytes of the scalar level on images that were decoded whole (contract C1).
#include <gtest/gtest.h>

#include "pipeline/decoder.h"
#include "tests/augment/fenced_source.h"
#include "tests/augment/forced_level.h"
#include "tests/augment/random_chain.h"
#include "tests/data/jpeg_forms.h"

namespace millrace {
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
  Size size;  ///< as it is seen
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

class Chains {
 public:
  explicit Chains(std::uint64_t number)
      : number_(number), draw_(stream({13, 0, number}, op_id("chains"))) {}

  /// The sample's bytes by `level`.
  Bytes carried_out(const Plan& plan, PixelSource& source, Simd level) const {
    const test::ForcedLevel forced(level);
    Bytes out(plan.output().bytes());
    const auto scratch = plan.make_scratch();
    plan.run({17, 2, number_}, source, reinterpret_cast<std::byte*>(out.data()), *scratch);
    return out;
  }

  void compare(const Photo& photo, test::FencedMemory& memory, test::FaultNote& note) {
    const auto ops = test::random_chain(5000 + number_, photo.size);
    const auto chain = test::specs_of(ops);
    const int channels = draw_.chance(.75) ? 3 : 1;
    const OutputOptions output = draw_.chance(.5)
                                     ? OutputOptions{DType::u8, Layout::hwc, {0}, {1}}
                                     : OutputOptions{DType::f32, Layout::chw, {.45}, {.25}};
    PlanOptions options(draw_.chance(.7) ? Resample::once : Resample::stepwise);
    const Plan in_parts(chain, {photo.size, channels}, output, options);
    options.region = false;
    const Plan whole(chain, {photo.size, channels}, output, options);
    Decoded decoded(photo.file, channels);
    const Bytes expected = carried_out(whole, decoded, Simd::scalar);
    for (const Simd level : test::simd_levels()) {
      const std::string what = fmt::format("chain {} by {}, {} channels: {}", number_,
                                           name_of(level), channels, test::to_text(ops));
      note.set(what);
      ASSERT_TRUE(carried_out(whole, decoded, level) == expected) << what << ", decoded whole";
      ASSERT_TRUE(carried_out(in_parts, decoded, level) == expected) << what << ", in parts";
      for (const bool at_front : {true, false}) {
        test::FencedSource fenced(decoded, memory, {at_front, 0x5A});
        ASSERT_TRUE(carried_out(in_parts, fenced, level) == expected) << what << ", fenced";
      }
    }
  }

 private:
  std::uint64_t number_;
  Draw draw_;
};

TEST(Chains, AreTheSameAtEveryLevelDecodedInPartsOrWhole) {
  const std::vector<Photo> all = photos();
  test::FencedMemory memory;
  test::FaultNote note;
  for (std::uint64_t number = 0; number < 160; ++number)
    ASSERT_NO_FATAL_FAILURE(Chains(number).compare(all[number % all.size()], memory, note));
}

}  // namespace
}  // namespace millrace
