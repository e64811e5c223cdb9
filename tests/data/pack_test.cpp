// Tests `data pack`: its output reads back as its input, in the same bytes every time.
#include <gtest/gtest.h>

#include <algorithm>

#include "millrace/error.h"
#include "millrace/limits.h"
#include "millrace/reader.h"
#include "pipeline/decoders/decoder.h"
#include "tests/data/support.h"
#include "tests/data/tar_builder.h"
#include "tools/data/data.h"

namespace millrace::pipeline {
namespace {

namespace fs = test::fs;
using test::Bytes;
using test::bytes_of;
using test::expect_data_error;
using test::expect_error;
using test::expect_same_samples;
using test::read_bytes;
using test::TempFolder;

/// Returns bytes that begin like a JPEG; nothing here decodes them.
Bytes picture(int i) {
  Bytes bytes(static_cast<std::size_t>(100 + 311 * i), static_cast<std::uint8_t>(i));
  bytes[0] = 0xff;
  bytes[1] = 0xd8;
  return bytes;
}

void write_folder(const TempFolder& folder, bool test_too = true) {
  for (int i = 0; i < 10; ++i)
    folder.write(
        "src/train/" + std::string(i % 2 == 0 ? "cat/" : "ant/") + std::to_string(i) + ".jpg",
        picture(i));
  if (!test_too) return;
  for (const char* name : {"cat/1.jpg", "ant/2.jpg", "ant/3.jpg"})
    folder.write(std::string("src/test/") + name, picture(1));
}

tools::PackOptions options_of(const TempFolder& folder, std::uint64_t shards = 0) {
  tools::PackOptions options;
  options.source = folder.path("src");
  options.target = folder.path("out");
  options.shards = shards;
  return options;
}

TEST(Pack, AFolderAndBack) {
  const TempFolder folder;
  write_folder(folder);
  std::uint64_t last = 0;
  tools::PackOptions options = options_of(folder, 3);
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_EQ(done, last + 1);
    EXPECT_EQ(total, 26u);
    last = done;
  };
  const auto packed = tools::pack(options);
  EXPECT_EQ(last, 26u);
  ASSERT_EQ(packed.size(), 2u);
  EXPECT_EQ(packed[0].files.size(), 3u);
  EXPECT_EQ(packed[0].count, 10u);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path("out")))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{
                       "classes.txt", "set.index", "test-000000.tar", "test-000000.tar.index",
                       "test-000001.tar", "test-000001.tar.index", "test-000002.tar",
                       "test-000002.tar.index", "train-000000.tar", "train-000000.tar.index",
                       "train-000001.tar", "train-000001.tar.index", "train-000002.tar",
                       "train-000002.tar.index"}));
  for (const char* split : {"train", "test"})
    expect_same_samples(*open_reader({"folder", folder.path("src"), split, 0}),
                        *open_reader({"tar", folder.path("out"), split, 0}));
  EXPECT_EQ(tools::detect_reader(folder.path("out")), "tar");
  EXPECT_EQ(tools::detect_reader(folder.path("src")), "folder");
}

TEST(Pack, NamesThatTakeMoreThanALineAreRefused) {
  for (const char* name : {"a\nb", "cat\n", "cat\r"}) {
    const TempFolder folder;
    write_folder(folder);
    folder.write("src/train/" + std::string(name) + "/1.jpg", picture(1));
    folder.write("src/test/" + std::string(name) + "/1.jpg", picture(1));
    expect_data_error({folder.path("src"), "class name", "classes.txt"},
                      [&] { tools::pack(options_of(folder)); });
    EXPECT_FALSE(fs::exists(folder.path("out")));
  }
}

TEST(Pack, OddNamesComeBackAsTheyWere) {
  const TempFolder folder;
  for (const char* name : {"a\tb", "a\\nb", "a\"b", " a ", "\x1b[31m", "a\rb"})
    folder.write("src/train/" + std::string(name) + "/1.jpg", picture(1));
  tools::pack(options_of(folder));
  expect_same_samples(*open_reader({"folder", folder.path("src"), "train", 0}),
                      *open_reader({"tar", folder.path("out"), "train", 0}));
}

TEST(Pack, ArchivesOfOneFolderShareTheirNames) {
  const TempFolder folder;
  write_folder(folder);
  tools::PackOptions options = options_of(folder);
  options.target = folder.path("out/one.tar");
  tools::pack(options);
  options.target = folder.path("out/two.tar");
  tools::pack(options);  // with the same names
  folder.write("src/train/bee/1.jpg", picture(1));
  options.target = folder.path("out/three.tar");
  expect_error(Exit::failed, {"classes.txt with other names"}, [&] { tools::pack(options); });
}

TEST(Pack, OneMoreArchiveEntersTheIndexOfTheSet) {
  const TempFolder folder;
  write_folder(folder);
  tools::pack(options_of(folder, 2));
  EXPECT_EQ(tools::check_indexes(folder.path("out")), std::vector<std::string>{});
  const Bytes other = read_bytes(folder.path("out/train-000000.tar.index"));
  for (const char* name : {"train-000001.tar", "train-000002.tar"}) {  // replaced, and added
    tools::PackOptions one = options_of(folder);
    one.target = folder.path("out/") + name;
    one.force = true;
    tools::pack(one);
    EXPECT_EQ(tools::check_indexes(folder.path("out")), std::vector<std::string>{}) << name;
  }
  EXPECT_EQ(read_bytes(folder.path("out/train-000000.tar.index")), other);
}

TEST(Pack, CanBeAbortedWhileItIndexes) {
  const TempFolder folder;
  write_folder(folder);
  tools::PackOptions options = options_of(folder, 2);
  bool all_done = false;
  options.progress = [&](std::uint64_t done, std::uint64_t total) { all_done = done == total; };
  options.indexing = [&] {
    EXPECT_TRUE(all_done);
    throw Error(Exit::interrupted, "enough", "start again");
  };
  expect_error(Exit::interrupted, {"enough"}, [&] { tools::pack(options); });
  options.indexing = {};
  options.force = true;
  tools::pack(options);
  EXPECT_EQ(tools::check_indexes(folder.path("out")), std::vector<std::string>{});
}

TEST(Pack, TheSameBytesEveryTime) {
  const TempFolder one, two;
  for (const TempFolder* folder : {&one, &two}) {
    write_folder(*folder);
    fs::last_write_time(folder->path("src/train/cat/0.jpg"),
                        fs::file_time_type::clock::now() - std::chrono::hours(folder == &one));
    tools::pack(options_of(*folder));
  }
  for (const char* name : {"out/train-000000.tar", "out/test-000000.tar", "out/classes.txt"})
    EXPECT_EQ(read_bytes(one.path(name)), read_bytes(two.path(name)));
}

Bytes photo(int width, int height, int level) {
  return tools::encode_jpeg(
      Bytes(static_cast<std::size_t>(3 * width * height), static_cast<std::uint8_t>(level)),
      {width, height}, 90);
}

TEST(Pack, LargeImagesAreResizedAndSmallOnesKept) {
  const TempFolder folder;
  const Bytes small = photo(120, 90, 200);
  folder.write("src/train/cat/0.jpg", photo(300, 200, 40));
  folder.write("src/train/cat/1.jpg", small);
  folder.write("src/train/dog/2.jpg", photo(100, 401, 90));
  folder.write("src/train/dog/3.jpg", photo(200, 200, 90));
  const std::pair<tools::ShrinkOptions, std::vector<Size>> cases[] = {
      {{.short_side = 100}, {{150, 100}, {120, 90}, {100, 401}, {100, 100}}},
      {{.max_side = 150}, {{150, 100}, {120, 90}, {37, 150}, {150, 150}}}};
  const auto before = open_reader({"folder", folder.path("src"), "train", 0});
  for (const auto& [shrink, sizes] : cases) {
    tools::PackOptions options = options_of(folder);
    options.shrink = shrink;
    options.force = true;
    tools::pack(options);
    const Bytes once = read_bytes(folder.path("out/train-000000.tar"));
    const auto after = open_reader({"tar", options.target, "train", 0});
    ASSERT_EQ(after->info().count, 4u);
    DecodeScratch decode;
    Buffer scratch, plain;
    for (std::uint64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(after->read(i, scratch).label, before->read(i, plain).label);
      const ImageView image = decode.decode(after->read(i, scratch).bytes, 3, kMaxPixels);
      EXPECT_EQ(image.size(), sizes[i]) << i;
    }
    EXPECT_EQ(bytes_of(*after, 1), small);
    const ImageView dark = decode.decode(after->read(0, scratch).bytes, 3, kMaxPixels);
    EXPECT_NEAR(dark.data[0], 40, 3);
    tools::pack(options);
    EXPECT_EQ(read_bytes(folder.path("out/train-000000.tar")), once);
  }

  folder.write("src/train/dog/4.jpg", test::cut(photo(300, 300, 90), 200));
  tools::PackOptions options = options_of(folder);
  options.shrink.short_side = 100;
  options.force = true;
  expect_data_error({"dog/4.jpg"}, [&] { tools::pack(options); });
}

TEST(Pack, KeepsTheMembersThatItIsAskedFor) {
  const TempFolder folder;
  test::TarBuilder tar;
  for (int i = 0; i < 6; ++i) {
    const std::string key = (i % 2 == 0 ? "cat/" : "ant/") + std::to_string(i);
    tar.add(key + ".json", R"({"number": )" + std::to_string(i) + "}");
    tar.add(key + ".jpg", picture(i)).add(key + ".SEG.png", picture(1)).add(key + ".more", "left");
    if (i != 3) tar.add(key + ".txt", std::string(static_cast<std::size_t>(100 * i), 'x'));
  }
  folder.write("src/set.tar", tar.end());
  tools::PackOptions options = options_of(folder, 2);
  options.members = {"txt", "json", "seg.png"};
  tools::pack(options);
  DataOptions source{"tar", options.source}, packed{"tar", options.target};
  source.members = packed.members = options.members;
  const auto before = open_reader(source), after = open_reader(packed);
  expect_same_samples(*before, *after);
  EXPECT_EQ(after->info().classes, (std::vector<std::string>{"ant", "cat"}));
  Buffer one, two;
  for (std::uint64_t i = 0; i < 6; ++i) {
    const Sample a = before->read(i, one), b = after->read(i, two);
    for (std::size_t name = 0; name < 3; ++name) {
      ASSERT_EQ(a.members[name].has_value(), b.members[name].has_value()) << i;
      EXPECT_TRUE(!a.members[name] || std::ranges::equal(*a.members[name], *b.members[name]));
    }
  }
  options.force = true;
  options.members = {"txt"};
  options.masks = source.masks = packed.masks = "seg.png";
  source.members = packed.members = options.members;
  tools::pack(options);
  const auto masked = open_reader(source), same = open_reader(packed);
  for (std::uint64_t i = 0; i < 6; ++i)
    EXPECT_TRUE(std::ranges::equal(masked->read(i, one).mask, same->read(i, two).mask)) << i;
  EXPECT_EQ(same->read(0, two).mask.size(), picture(1).size());
  options.members = {"seg.png"};
  EXPECT_THROW(tools::pack(options), UsageError) << "it is the mask";
  options.members.clear();
  options.shrink.short_side = 8;
  EXPECT_THROW(tools::pack(options), UsageError) << "masks keep their size";
  options.shrink.short_side = 0;
  options.masks.clear();
  for (const char* own : {"cls", "jpg", "png"}) {  // pack writes these itself
    options.members = {own};
    EXPECT_THROW(tools::pack(options), UsageError) << own;
  }
  options.source = folder.path("photos");
  folder.write("photos/a/1.jpg", picture(1));
  options.members = {"txt"};
  EXPECT_THROW(tools::pack(options), UsageError);
}

TEST(Pack, SizeDecidesTheNumberOfShards) {
  const TempFolder folder;
  write_folder(folder, false);
  tools::PackOptions options = options_of(folder);
  options.shard_bytes = 6000;
  const auto packed = tools::pack(options);
  EXPECT_GT(packed[0].files.size(), 3u);
  for (const std::string& file : packed[0].files) EXPECT_LE(fs::file_size(file), 6000u + 1024);
  expect_same_samples(*open_reader({"folder", options.source, "train", 0}),
                      *open_reader({"tar", options.target, "train", 0}));
}

TEST(Pack, OneSplitUnderANameOrAPattern) {
  const TempFolder folder;
  write_folder(folder);
  tools::PackOptions options = options_of(folder);
  options.target = folder.path("out/some-{00..02}.tar");
  EXPECT_EQ(tools::pack(options)[0].files.size(), 3u);
  EXPECT_EQ(open_reader({"tar", options.target, "train", 0})->info().count, 10u);
  options.target = folder.path("out/one.tar");
  options.split = "test";
  EXPECT_EQ(tools::pack(options)[0].count, 3u);
  expect_error(Exit::failed, {"one.tar", "already holds other files"},
               [&] { tools::pack(options); });
  options.shards = 4;
  options.target = folder.path("out/four-{0..2}.tar");
  expect_error(Exit::usage, {"--shards 4", "3"}, [&] { tools::pack(options); });
}

TEST(Pack, NothingIsWrittenOverUnasked) {
  const TempFolder folder;
  write_folder(folder);
  folder.write("out/mine.txt", {1});
  expect_error(Exit::failed, {folder.path("out"), "mine.txt"},
               [&] { tools::pack(options_of(folder)); });
  EXPECT_FALSE(fs::exists(folder.path("out/train-000000.tar")));
  tools::PackOptions options = options_of(folder, 4);
  options.force = true;
  tools::pack(options);
  options.shards = 2;
  tools::pack(options);
  EXPECT_FALSE(fs::exists(folder.path("out/train-000003.tar"))) << "shards of the set before";
  EXPECT_TRUE(fs::exists(folder.path("out/mine.txt")));
  EXPECT_EQ(open_reader({"tar", folder.path("out"), "train", 0})->info().count, 10u);
}

TEST(Pack, WhatFailsLeavesNothing) {
  const TempFolder folder;
  write_folder(folder);
  folder.write("src/train/ant/5.jpg", {1, 2, 3});
  expect_data_error({"src/train/ant/5.jpg", "unknown image format"},
                    [&] { tools::pack(options_of(folder)); });
  EXPECT_TRUE(fs::is_empty(folder.path("out")));
  fs::remove(folder.path("src/train/ant/5.jpg"));
  tools::PackOptions options = options_of(folder);
  options.progress = [](std::uint64_t done, std::uint64_t) {
    if (done == 7) throw Error(Exit::interrupted, "interrupted", "x");
  };
  expect_error(Exit::interrupted, {"interrupted"}, [&] { tools::pack(options); });
  EXPECT_TRUE(fs::is_empty(folder.path("out")));
  fs::remove_all(folder.path("src/test/cat"));
  expect_data_error({"train and test have different classes"},
                    [&] { tools::pack(options_of(folder)); });
  folder.write("idx/train-images-idx3-ubyte", test::idx_images(3));
  folder.write("idx/train-labels-idx1-ubyte", test::idx_labels({1, 0, 1}));
  options = options_of(folder);
  options.source = folder.path("idx");
  expect_error(Exit::usage, {"pixels"}, [&] { tools::pack(options); });
}

TEST(Pack, VerifyTakesArchivesAndManifests) {
  const TempFolder folder;
  write_folder(folder);
  tools::pack(options_of(folder, 2));
  const auto verify = [&](const std::string& path) {
    return tools::verify_data({path, 0, 1'000'000, 1, {}});
  };
  tools::VerifyReport report = verify(folder.path("out"));
  EXPECT_EQ(report.kind, "tar");
  ASSERT_EQ(report.splits.size(), 2u);
  EXPECT_EQ(report.splits[0].class_counts, (std::vector<std::uint64_t>{5, 5}));
  EXPECT_EQ(report.problems.size(), 13u) << "none of them can be decoded";
  EXPECT_NE(report.problems[0].where.find("train-000000.tar member 000000000.jpg"),
            std::string::npos);
  fs::resize_file(folder.path("out/test-000001.tar"), 700);
  report = verify(folder.path("out"));
  EXPECT_EQ(report.splits.size(), 1u);
  EXPECT_NE(report.problems.back().what.find("truncated"), std::string::npos);

  folder.write("m.csv", test::bytes_from("path,label\nsrc/train/ant/1.jpg,0\ngone.jpg,1\n"));
  report = verify(folder.path("m.csv"));
  EXPECT_EQ(report.kind, "manifest");
  EXPECT_EQ(report.problems.size(), 2u);
  EXPECT_EQ(verify(folder.path("nowhere.tar")).problems.size(), 1u);
}

TEST(Pack, BoxesAreNotLostSilently) {
  const TempFolder folder;
  tools::make_boxes({.path = folder.path("boxes"), .train = 2, .test = 1, .progress = {}});
  tools::PackOptions options;
  options.source = folder.path("boxes");
  options.target = folder.path("out");
  expect_error(Exit::usage, {"has boxes, which archives do not keep"},
               [&] { tools::pack(options); });
}

}  // namespace
}  // namespace millrace::pipeline
