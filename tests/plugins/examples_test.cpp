// Tests that the shipped examples do what they say, through the units that a recipe gets.
#include <gtest/gtest.h>

#include <cmath>

#include "augment/plan/plan.h"
#include "millrace/error.h"
#include "millrace/reader.h"
#include "pipeline/decoders/decoder.h"
#include "plugins/host/registry.h"
#include "tests/plugins/support.h"

namespace millrace::plugins {
namespace {

using namespace plugin_test;

constexpr std::uint64_t kNoLimit = 1'000'000;

/// Runs one image of gray levels through one augmentation and returns its bytes.
Bytes augmented(const std::string& op, const Bytes& levels, Size size, std::uint64_t sample) {
  Recipe recipe(op_declarations());
  recipe.set("augment+=" + op);
  OutputOptions output;
  output.dtype = DType::u8;
  const augment::Plan plan(recipe.augment(), {size, 1}, output, Resample::once);
  const auto scratch = plan.make_scratch();
  Bytes padded = levels;
  padded.resize(levels.size() + kTailSlack);
  WholeImage image(interleaved(padded.data(), size, 1));
  Bytes out(plan.output().bytes() + kTailSlack);
  plan.run({1, 0, sample}, image, reinterpret_cast<std::byte*>(out.data()), *scratch);
  out.resize(plan.output().bytes());
  return out;
}

TEST(Examples, ZoomOutShrinksTheWholeImage) {
  add_plugin(example_plugin("random_zoom_out"));
  const Size size{40, 40};
  bool moved = false;
  for (std::uint64_t sample = 0; sample < 20; ++sample) {
    const Bytes out = augmented("random_zoom_out{most=3,fill=[7]}", Bytes(1600, 200), size, sample);
    const auto shown = std::count(out.begin(), out.end(), 200);
    const auto filled = std::count(out.begin(), out.end(), 7);
    EXPECT_GE(shown, 1600 / 9 - 80);  // the edges mix
    EXPECT_GE(shown + filled, 1600 - 170);
    moved |= filled > 400;
  }
  EXPECT_TRUE(moved);
  EXPECT_EQ(augmented("random_zoom_out{most=1}", Bytes(1600, 200), size, 0), Bytes(1600, 200));
}

TEST(Examples, VignetteDarkensTowardsTheCorners) {
  add_plugin(example_plugin("vignette"));
  for (std::uint64_t sample = 0; sample < 20; ++sample) {
    const Bytes out = augmented("vignette{most=1}", Bytes(81, 200), {9, 9}, sample);
    EXPECT_EQ(out[4 * 9 + 4], 200) << "the middle is as bright as before";
    for (int i = 0; i < 4; ++i) {
      EXPECT_LE(out[i * 9 + i], out[(i + 1) * 9 + i + 1]);
      EXPECT_EQ(out[i * 9 + i], out[(8 - i) * 9 + 8 - i]);
    }
  }
}

TEST(Examples, QoiHasEveryOperation) {
  add_plugin(example_plugin("qoi"));
  const Bytes file = qoi_file();
  const Bytes expected = qoi_pixels();
  pipeline::DecodeScratch scratch;
  ImageView image = scratch.decode(file, 3, kNoLimit);
  EXPECT_EQ(image.size(), (Size{4, 3}));
  for (int i = 0; i < 12; ++i)
    for (int c = 0; c < 3; ++c)
      EXPECT_EQ(*image.at(i % 4, i / 4, c), expected[i * 3 + c]) << "pixel " << i;
  image = scratch.decode(file, 1, kNoLimit);
  EXPECT_EQ(*image.at(0, 0), std::lround(0.299 * 10 + 0.587 * 20 + 0.114 * 30));
}

TEST(Examples, QoiRefusesWhatIsCutShort) {
  add_plugin(example_plugin("qoi"));
  const Bytes file = qoi_file();
  pipeline::DecodeScratch scratch;
  for (std::size_t size = 4; size + 8 < file.size(); ++size) {
    const Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THROW(scratch.decode(cut, 3, kNoLimit), DataError) << size << " bytes";
  }
  EXPECT_THROW(scratch.decode(qoi_header(65535, 65535), 3, kNoLimit), DataError);
}

class Npy : public testing::Test {
 protected:
  Npy() { add_plugin(example_plugin("npy")); }
  std::unique_ptr<Reader> open(const std::string& layout = "hwc", int classes = 0) const {
    DataOptions options;
    options.reader = "npy";
    options.path = folder.path();
    options.classes = classes;
    options.parameters["layout"] = layout;
    return open_reader(options);
  }
  std::string refusal(const std::string& layout = "hwc", int classes = 0) const {
    try {
      open(layout, classes);
    } catch (const DataError& error) {
      return error.what();
    }
    return "opened";
  }
  Folder folder;
};

TEST_F(Npy, ReadsArraysInPlace) {
  Bytes pixels(2 * 3 * 4);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i);
  folder.write("train_images.npy", npy_file("|u1", "2, 3, 4", pixels));
  folder.write("train_labels.npy", npy_file("<i8", "2,",
                                            {1, 0, 0, 0, 0, 0, 0, 0,  //
                                             2, 0, 0, 0, 0, 0, 0, 0}));
  const auto reader = open();
  const DatasetInfo& info = reader->info();
  EXPECT_EQ(info.reader, "npy");
  EXPECT_EQ(info.count, 2u);
  EXPECT_EQ(info.size, (Size{4, 3}));
  EXPECT_EQ(info.channels, 1);
  EXPECT_EQ(info.classes, (std::vector<std::string>{"0", "1", "2"}));
  Buffer scratch;
  const Sample sample = reader->read(1, scratch);
  EXPECT_EQ(Bytes(sample.bytes.begin(), sample.bytes.end()),
            Bytes(pixels.begin() + 12, pixels.end()));
  EXPECT_EQ(sample.label, 2);
  EXPECT_EQ(scratch.capacity(), 0u) << "mapped bytes were copied";
  EXPECT_NE(reader->name(1).find("train_images.npy image 1"), std::string::npos);
  EXPECT_EQ(refusal("hwc", 2), folder.path() + ": 3 classes, but labels must lie below 2");
  EXPECT_EQ(open("hwc", 5)->info().classes.size(), 5u);
  const std::uint64_t before = info.fingerprint;
  pixels[5] ^= 1;
  folder.write("train_images.npy", npy_file("|u1", "2, 3, 4", pixels));
  EXPECT_NE(open()->info().fingerprint, before);
}

TEST_F(Npy, ColourInEitherLayout) {
  folder.write("train_labels.npy", npy_file("|u1", "1,", {0}));
  folder.write("train_images.npy", npy_file("|u1", "1, 3, 2, 5", Bytes(30)));
  const auto planar = open("chw");
  EXPECT_TRUE(planar->info().planar);
  EXPECT_EQ(planar->info().size, (Size{5, 2}));
  folder.write("train_images.npy", npy_file("|u1", "1, 2, 5, 3", Bytes(30)));
  EXPECT_EQ(open()->info().channels, 3);
  EXPECT_EQ(open()->info().size, (Size{5, 2}));
  EXPECT_EQ(refusal("chw"),
            "npy: " + folder.path() + ": images of 2 channels: 1 or 3 are possible");
}

TEST_F(Npy, DamagedArraysAreRefused) {
  const Bytes labels = npy_file("|u1", "1,", {0});
  const Bytes images = npy_file("|u1", "1, 2, 2", Bytes(4));
  folder.write("train_labels.npy", labels);
  const auto refused = [&](const Bytes& bytes, const char* why) {
    folder.write("train_images.npy", bytes);
    EXPECT_NE(refusal().find(why), std::string::npos) << refusal();
  };
  EXPECT_NE(refusal().find("cannot be read"), std::string::npos);
  for (std::size_t size = 1; size < images.size(); ++size)
    EXPECT_NO_FATAL_FAILURE(
        refused(Bytes(images.begin(), images.begin() + static_cast<std::ptrdiff_t>(size)), "npy"));
  refused(Bytes(40), "no .npy file");
  refused(npy_file("|u1", "1, 2, 3", Bytes(4)), "its shape and the file's length don't fit");
  refused(npy_file("|u1", "18446744073709551615, 4, 4", Bytes(4)), "too large");
  refused(npy_file("<f4", "1, 2, 2", Bytes(16)), "not unsigned bytes");
  refused(npy_file("|u1", "4,", Bytes(4)), "not unsigned bytes");
  folder.write("train_labels.npy", npy_file("|u1", "2,", {0, 1}));
  refused(images, "not one integer an image");
  folder.write("train_labels.npy", npy_file("<i4", "1,", {255, 255, 255, 127}));
  refused(images, "more than 65536 classes");
}

}  // namespace
}  // namespace millrace::plugins
