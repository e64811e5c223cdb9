// Tests data.masks: which file is an image's mask, and what is said of those that are missing.
#include <gtest/gtest.h>

#include "tests/data/png_file.h"

namespace millrace::pipeline {
namespace {

using test::Bytes;
using test::TempFolder;

Bytes bytes_of_text(const std::string& words) { return {words.begin(), words.end()}; }

/// Two splits of two classes, whose images and masks have their own names as bytes.
void write_masked_set(const TempFolder& folder) {
  for (const std::string name : {"train/cat/a", "train/cat/deep/b.c", "train/dog/d", "val/cat/e"}) {
    folder.write("set/" + name + ".jpg", bytes_of_text("image " + name));
    folder.write("masks/" + name + ".png", bytes_of_text("mask " + name));
  }
}

DataOptions mask_options(const TempFolder& folder, const std::string& split = "train") {
  DataOptions options;
  options.reader = "folder";
  options.path = folder.path("set");
  options.split = split;
  options.masks = folder.path("masks");
  return options;
}

std::vector<std::string> masks_of(const Reader& reader) {
  std::vector<std::string> masks;
  Buffer scratch;
  for (std::uint64_t i = 0; i < reader.info().count; ++i) {
    const auto bytes = reader.mask(i, scratch);
    masks.emplace_back(bytes.begin(), bytes.end());
  }
  return masks;
}

TEST(MaskFolder, AMaskLiesWhereItsImageDoes) {
  const TempFolder folder;
  write_masked_set(folder);
  const std::vector<std::string> expected{"mask train/cat/a", "mask train/cat/deep/b.c",
                                          "mask train/dog/d"};
  DataOptions options = mask_options(folder);
  const auto reader = open_reader(options);
  EXPECT_TRUE(reader->info().masks);
  EXPECT_EQ(masks_of(*reader), expected);
  EXPECT_EQ(masks_of(*open_reader(mask_options(folder, "test"))),
            std::vector<std::string>{"mask val/cat/e"});
  for (const Cache cache : {Cache::ram, Cache::cold}) {
    options.cache = cache;
    const auto cached = open_reader(options);
    for (int pass = 0; pass < 2; ++pass) EXPECT_EQ(masks_of(*cached), expected);
    Buffer scratch;
    EXPECT_EQ(cached->mask(1, scratch).data() != scratch.data(), cache == Cache::ram);
  }
  options.cache = Cache::os;
  options.fraction = 0.5;
  EXPECT_EQ(masks_of(*open_reader(options)),
            (std::vector<std::string>{"mask train/cat/a", "mask train/dog/d"}));
}

TEST(MaskFolder, MasksArePartOfTheFingerprint) {
  const TempFolder folder;
  write_masked_set(folder);
  DataOptions options = mask_options(folder);
  const std::uint64_t with = open_reader(options)->info().fingerprint;
  folder.write("masks/train/dog/d.png", bytes_of_text("longer than before"));
  EXPECT_NE(open_reader(options)->info().fingerprint, with);
  options.masks.clear();
  EXPECT_FALSE(open_reader(options)->info().masks);
  EXPECT_NE(open_reader(options)->info().fingerprint, with);
}

TEST(MaskFolder, AMissingMaskIsAnErrorOfItsSample) {
  const TempFolder folder;
  write_masked_set(folder);
  test::fs::remove(folder.path("masks/train/dog/d.png"));
  const auto reader = open_reader(mask_options(folder));
  Buffer scratch;
  EXPECT_EQ(reader->mask(0, scratch).size(), 16u);
  test::expect_error(Exit::data,
                     {"its mask " + folder.path("masks/train/dog/d.png"), "No such file"},
                     [&] { reader->mask(2, scratch); });
}

TEST(MaskFolder, ASetWithoutMasksIsRefusedAtTheStart) {
  const TempFolder folder;
  write_masked_set(folder);
  DataOptions options = mask_options(folder);
  folder.write("other/train/cat/b.png", bytes_of_text("mask of no image"));
  options.masks = folder.path("other");
  test::expect_error(Exit::data, {"no image has a mask", folder.path("other/train/cat/a.png")},
                     [&] { open_reader(options); });
  folder.write("set/train/cat/a.png", bytes_of_text("mask beside its image"));
  test::fs::create_directory_symlink(folder.path("set"), folder.path("link"));
  for (const char* name : {"set", "link"}) {
    options.masks = folder.path(name);
    test::expect_error(Exit::usage, {"data.masks=" + options.masks, "is the folder of the images"},
                       [&] { open_reader(options); });
  }
  options = {"synthetic", "", "train", 0};
  options.masks = folder.path("masks");
  test::expect_error(Exit::usage, {"data.masks=", "data.reader=synthetic reads no masks"},
                     [&] { open_reader(options); });
}

}  // namespace
}  // namespace millrace::pipeline
