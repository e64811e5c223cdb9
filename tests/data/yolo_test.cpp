// Tests YOLO's label files, the errors that a line can have, and the layouts of sets.
#include <gtest/gtest.h>

#include "millrace/reader.h"
#include "pipeline/readers/data_set.h"
#include "pipeline/readers/yolo_config.h"
#include "pipeline/readers/yolo_labels.h"
#include "tests/data/support.h"

namespace millrace::pipeline {
namespace {

using test::Bytes;
using test::expect_data_error;
using test::open;
using test::TempFolder;

Bytes text(std::string_view lines) { return {lines.begin(), lines.end()}; }

void expect_box(const Box& box, const Box& expected) {
  EXPECT_FLOAT_EQ(box.x0, expected.x0);
  EXPECT_FLOAT_EQ(box.y0, expected.y0);
  EXPECT_FLOAT_EQ(box.x1, expected.x1);
  EXPECT_FLOAT_EQ(box.y1, expected.y1);
}

TEST(YoloLabels, LinesAreBoxesByTheirCentreOrOutlines) {
  Annotations all;
  EXPECT_EQ(parse_yolo("a.txt",
                       "2 0.5 0.25 0.5 0.25\n"
                       "\n"
                       "  0\t0.25 0.5 0.75 0.125 0.5 0.875 0.375 0.25 \r\n"
                       "1 1.0001 0.5 0.25 1.005",
                       3, all),
            0u);
  parse_yolo("b.txt", "", 3, all);
  EXPECT_EQ(parse_yolo("c.txt", "0 0.5 0.5 0 0.5\n1 1.005 0.5 0.001 0.5\n1 0.5 0.5 1 1\n", 3, all),
            2u)
      << "one without area, one outside of its image";
  EXPECT_EQ(all.ends, (std::vector<std::uint64_t>{3, 3, 4}));
  EXPECT_EQ(all.classes, (std::vector<std::int64_t>{2, 0, 1, 1}));
  expect_box(all.boxes[0], {0.25F, 0.125F, 0.75F, 0.375F});
  expect_box(all.boxes[1], {0.25F, 0.125F, 0.75F, 0.875F});
  expect_box(all.boxes[2], {0.8751F, 0, 1, 1});
}

TEST(YoloLabels, BadLines) {
  const auto refused = [](const std::string& lines, std::initializer_list<std::string> parts) {
    Annotations all;
    expect_data_error(parts, [&] { parse_yolo("a.txt", lines, 3, all); });
  };
  refused("0 0.5 0.5 0.1 0.1\n3 0.5 0.5 0.1 0.1\n", {"a.txt:2: class 3 is not below 3 classes"});
  refused("-1 0.5 0.5 0.1 0.1", {"a.txt:1: class '-1' is no whole number"});
  refused("1.0 0.5 0.5 0.1 0.1", {"class '1.0' is no whole number"});
  refused("99999999999999999999 0.5 0.5 0.1 0.1", {"class '99999999999999999999' is no whole"});
  refused("cat\x1b[31m 0.5 0.5 0.1 0.1", {R"(class 'cat\u001b[31m' is)"});
  refused("\n\n0 0.5 0.5 0.1", {"a.txt:3: 3 numbers behind the class"});
  refused("0", {"0 numbers behind the class"});
  refused("0 0.5 0.5 0.1 0.1 0.9", {"5 numbers behind the class"});
  refused("0 0.5 0.5 0.1 0.1 0.9 0.2 0.3", {"7 numbers behind the class"});
  refused("0 0.5,0.5 0.1 0.1 0", {"'0.5,0.5' is no number"});
  refused("0 0.5 0.5 0.1 1e999", {"'1e999' is no number"});
  for (const char* number : {"120", "-0.5", "nan", "inf", "1.02"})
    refused(std::string("0 0.5 ") + number + " 0.1 0.1", {"is not between 0 and 1"});
  refused("0 0.5 0.5 -0.005 0.1", {"a box of -0.005 x 0.1"});
  refused(std::string(100'000, 'x'), {"class 'xxx"});

  std::string crowded;
  for (std::size_t i = 0; i < kMaxObjects; ++i) crowded += "1 0.5 0.5 0.1 0.1\n";
  Annotations all;
  parse_yolo("a.txt", crowded, 3, all);
  EXPECT_EQ(all.boxes.size(), kMaxObjects);
  refused(crowded + "1 0.5 0.5 0.1 0.1\n", {"a.txt:65537: more than 65536 objects"});
}

Annotations with_points(std::size_t points) {
  Annotations all;
  all.points = points;
  return all;
}

TEST(YoloLabels, KeyPointsStandBehindABox) {
  Annotations all = with_points(2);
  EXPECT_EQ(parse_yolo("a.txt",
                       "1 0.5 0.5 0.5 0.25 0.25 0.75 2 0 0 0\n"
                       "0 0.5 0.5 0 0.25 0.25 0.75 2 0.5 0.5 1\n"
                       "2 0.5 0.5 0.5 0.25 1.005 0.5 1.0 -0.001 1 2.000\n",
                       3, all),
            1u)
      << "one without area";
  EXPECT_EQ(all.classes, (std::vector<std::int64_t>{1, 2}));
  expect_box(all.boxes[0], {0.25F, 0.375F, 0.75F, 0.625F});
  const KeyPoint expected[] = {{0.25F, 0.75F, 2}, {0, 0, 0}, {1, 0.5F, 1}, {0, 1, 2}};
  ASSERT_EQ(all.key_points.size(), std::size(expected));
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    EXPECT_EQ(all.key_points[i].x, expected[i].x);
    EXPECT_EQ(all.key_points[i].y, expected[i].y);
    EXPECT_EQ(all.key_points[i].visibility, expected[i].visibility);
  }
  Annotations plain = with_points(1);
  parse_yolo("a.txt", "0 0.5 0.5 0.5 0.25 0.25 0.75", 1, plain, 2);
  EXPECT_EQ(plain.key_points.at(0).visibility, 2) << "visible";

  const auto refused = [](const std::string& line, std::initializer_list<std::string> parts) {
    Annotations none = with_points(2);
    expect_data_error(parts, [&] { parse_yolo("a.txt", "\n" + line, 3, none); });
  };
  refused("0 0.5 0.5 0.5 0.5", {"a.txt:2: 4 numbers behind the class instead of 10"});
  refused("0 0.5 0.5 0.5 0.5 0 0 0 0 0 0 0", {"11 numbers behind the class instead of 10"});
  refused("0 0.5 0.5 0.5 0.5 0 0 3 0 0 0", {"a visibility of '3'"});
  refused("0 0.5 0.5 0.5 0.5 0 0 0.5 0 0 0", {"a visibility of '0.5'"});
  refused("0 0.5 0.5 0.5 0.5 7 0 1 0 0 0", {"'7' is not between 0 and 1"});
  refused("0 0.5 0.5 -0.005 0.5 0 0 1 0 0 0", {"a box of -0.005 x 0.5"});
}

YoloConfig config_of(const std::string& lines) { return parse_yolo_config("data.yaml", lines); }

TEST(YoloConfig, NamesAreAListOrAMappingInEitherStyle) {
  const std::vector<std::string> names{"cat", "big dog", "owl's", "caf\xC3\xA9 #1: a"};
  for (const char* lines : {
           "names: [cat, big dog, 'owl''s', \"caf\xC3\xA9 #1: a\"]",
           "\xEF\xBB\xBFpath: ../x  # the root\ntrain: images/train\n\nnames:\r\n  - cat\r\n"
           "  # a comment\n\n  - big dog  # one more\n  - owl's\n  - 'caf\xC3\xA9 #1: a'\nnc: 4\n",
           "names:\n- cat\n- big dog\n-   owl's\n- \"caf\xC3\xA9 #1: a\"\n---\nmore: x",
           "'names' :\n    1: big dog\n    0: cat\n    \"3\":  'caf\xC3\xA9 #1: a'\n    2 : owl's",
           "\"names\": {0: cat, 3: 'caf\xC3\xA9 #1: a',\n  2: owl's, # more\n  1: big dog,\n} # "
           "end",
           "download: |\n  names: [no]\nnames:\n  [cat, big dog,\n   owl's, 'caf\xC3\xA9 #1: a']",
       })
    EXPECT_EQ(config_of(lines).names, names) << lines;
  EXPECT_EQ(config_of("names: [\"a \\\"b\\\\\"]").names, std::vector<std::string>{"a \"b\\"});
  EXPECT_EQ(config_of("base: &all [a, b]\nnames: *all").names,
            (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(config_of("names: [a#b, c:d, 7, -1]").names,
            (std::vector<std::string>{"a#b", "c:d", "7", "-1"}));
  EXPECT_TRUE(config_of("").names.empty());
  EXPECT_TRUE(config_of("# names: [a]\nnames_of: [b]\nmore: {names: [c]}\n").names.empty());
}

TEST(YoloConfig, KeyPointsAndTheirPartners) {
  const YoloConfig config =
      config_of("flip_idx: [0, 2, 1, 4, 3]\nkpt_shape: [5, 3]  # number, dimensions\n");
  EXPECT_EQ(config.points, 5u);
  EXPECT_EQ(config.numbers_per_point, 3u);
  EXPECT_EQ(config.flip_pairs, (std::vector<std::pair<std::size_t, std::size_t>>{{1, 2}, {3, 4}}));
  EXPECT_EQ(config_of("kpt_shape:\n  - 1\n  - 2\n").numbers_per_point, 2u);
  EXPECT_TRUE(config_of("flip_idx: [1, 0]").flip_pairs.empty()) << "boxes only";
}

TEST(YoloConfig, WhatIsWrongIsNamedWithItsLine) {
  const auto refused = [](const std::string& lines, const std::string& part) {
    expect_data_error({"data.yaml:" + part}, [&] { config_of(lines); });
  };
  refused("a: b\nnames: cat", "2: names is neither a list nor a mapping");
  refused("names: [cat, dog", "1: end of sequence flow not found");
  refused("\nnames: [cat,\n'dog]\n", "4: end of sequence flow not found");
  refused("names: [cat dog, [a]]", "1: names: a list, a mapping or nothing instead of a word");
  refused("names: ['a' 'b']", "1: end of sequence flow not found");
  refused("names: [a] b", "1: ");
  refused("names: [a, , b]", "1: names: a list, a mapping or nothing instead of a word");
  refused("names: [*anchor]", "1: the referenced anchor is not defined");
  refused("names: [\"caf\\q\"]", "1: unknown escape character: q");
  refused("names: ['']", "1: names: a name is empty");
  refused("names:\n  - a\n  1: b\n", "3: ");
  refused("names:\n  - a: b\n", "2: names: a list, a mapping or nothing");
  refused("names:\n  0 cat\n", "2: names is neither a list nor a mapping");
  refused("names:\n  0:\n    more: cat\n", "3: names: a list, a mapping or nothing");
  refused("a: \tb\n\tc: d", "2: ");
  refused(std::string(2000, '['), "1: ");
  expect_data_error({"data.yaml: 1048577 bytes, too long"},
                    [&] { config_of(std::string((1 << 20) + 1, '#')); });
  refused("names: {0: a, 2: b}", "1: names: class 2 of 2 classes");
  refused("names:\n  0: a\n  0: b\n", "3: names: class 0 comes twice");
  refused("names: {x: a}", "1: names: 'x' is no whole number");
  refused("names: {-1: a}", "1: names: '-1' is no whole number");
  refused("names: [a]\nnames: [b]", "2: names comes twice");
  refused("kpt_shape: [17]", "1: kpt_shape is not a number of points and 2 or 3");
  refused("kpt_shape: [17, 4]", "1: kpt_shape is not");
  refused("kpt_shape: [1025, 3]", "1: kpt_shape is not");
  refused("kpt_shape: {0: 17, 1: 3}", "1: kpt_shape is not a list");
  refused("kpt_shape: [1e1, 3]", "1: kpt_shape: '1e1' is no whole number");
  for (const char* partners : {"[1, 2, 0]", "[0, 1]", "[0, 1, 3]", "[0, 1, 2, 3]"})
    refused(std::string("kpt_shape: [3, 2]\nflip_idx: ") + partners,
            "2: flip_idx does not exchange 3 key points in pairs");
}

TEST(Yolo, FilesAreFoundInEveryLayout) {
  const struct {
    std::string images, labels, split;
  } layouts[] = {{"images/train/", "labels/train/", "train"},
                 {"images/train2017/", "labels/train2017/", "train"},
                 {"train/images/", "train/labels/", "train"},
                 {"images/", "labels/", "train"},
                 {"images/train/city/", "labels/train/city/", "train"},
                 {"images/val/", "labels/val/", "test"},
                 {"valid/images/", "valid/labels/", "test"}};
  for (const auto& layout : layouts) {
    const TempFolder folder;
    folder.write(layout.images + "b.c.jpg", text("b"));
    folder.write(layout.images + "a.png", text("a"));
    folder.write(layout.labels + "b.c.txt", text("1 0.5 0.5 0.5 0.5\n"));
    if (layout.split == "test") folder.write("images/test/c.jpg", text("no split without labels"));
    const auto reader = open(folder, "yolo", layout.split);
    ASSERT_EQ(reader->info().count, 2u) << layout.images;
    EXPECT_TRUE(reader->name(0).ends_with(layout.images + "a.png")) << reader->name(0);
    EXPECT_EQ(test::bytes_of(*reader, 1), text("b"));
    EXPECT_EQ(reader->info().classes, (std::vector<std::string>{"0", "1"}));
    const Annotations& all = *reader->annotations();
    EXPECT_EQ(all.ends, (std::vector<std::uint64_t>{0, 1}));
    EXPECT_EQ(all.image_ids, (std::vector<std::int64_t>{0, 1}));
    EXPECT_THROW(open(folder, "yolo", layout.split == "train" ? "test" : "train"), MissingSplit);
  }
}

TEST(Yolo, BadSets) {
  const auto refused = [](const TempFolder& folder, std::initializer_list<std::string> parts) {
    expect_data_error(parts, [&] { open(folder, "yolo"); });
  };
  const TempFolder folder;
  expect_data_error({"data.path is empty"}, [] { open_reader({"yolo", "", "train", 0}); });
  expect_data_error({"nowhere: No such file"}, [&] {
    open_reader({"yolo", folder.path("nowhere"), "train", 0});
  });
  refused(folder, {"no images and labels of split 'train'"});
  folder.write("labels/train/a.txt", text("0 0.5 0.5 0.5 0.5\n7 0.5 0.5 0.5\n"));
  test::fs::create_directories(folder.path("images/train"));
  refused(folder, {"images/train: no images"});
  folder.write("images/train/b.jpg", text("b"));
  refused(folder, {"labels/train: no label file of an image in"});
  folder.write("images/train/a.jpg", text("a"));
  refused(folder, {"labels/train/a.txt:2: 3 numbers behind the class"});
  folder.write("images/train/more/a.jpg", text("a"));
  refused(folder, {"images/train: images beside folders"});
  test::fs::remove_all(folder.path("images/train/more"));

  test::fs::remove(folder.path("labels/train/a.txt"));
  test::fs::create_directories(folder.path("labels/train/a.txt"));
  refused(folder, {"labels/train/a.txt", "not a regular file"});
  test::fs::remove(folder.path("labels/train/a.txt"));
  folder.write("labels/train/a.txt", {});
  std::error_code none;  // sparse; some file systems cannot hold such a file
  test::fs::resize_file(folder.path("labels/train/a.txt"), 100 << 20, none);
  if (!none) refused(folder, {"a.txt: 104857600 bytes, too long for a text file of YOLO"});
}

TEST(Yolo, ClassesAreNamedByAFileOrNumbered) {
  const TempFolder folder;
  folder.write("images/train/a.jpg", text("a"));
  folder.write("labels/train/a.txt", text("2 0.5 0.5 0.5 0.5\n0 0.5 0.5 0 0.5\n"));
  std::string warning;
  DataOptions options{"yolo", folder.path(), "train", 5};
  options.warn = [&](const std::string& line) { warning = line; };
  EXPECT_EQ(open_reader(options)->info().classes.size(), 5u);
  EXPECT_EQ(warning,
            folder.path("labels/train") + ": 1 line without area inside their images is left out");
  options.classes = 2;
  expect_data_error({"a.txt:1: class 2 is not below 2 classes"}, [&] { open_reader(options); });
  folder.write("classes.txt", text("cat\r\ndog\nowl\n"));
  EXPECT_EQ(open_reader(options)->info().classes, (std::vector<std::string>{"cat", "dog", "owl"}));
  folder.write("data.yaml", text("nc: 3\n"));
  EXPECT_EQ(open_reader(options)->info().classes, (std::vector<std::string>{"cat", "dog", "owl"}));
  folder.write("data.yaml", text("names: {0: Cat, 1: Dog, 2: Owl}\n"));
  EXPECT_EQ(open_reader(options)->info().classes, (std::vector<std::string>{"Cat", "Dog", "Owl"}));
  folder.write("data.yaml", text("names: [Cat\n"));
  expect_data_error({folder.path("data.yaml") + ":2: end of sequence flow not found"},
                    [&] { open_reader(options); });
}

TEST(Yolo, KeyPointsGoWithTheSamplesOfASubset) {
  const TempFolder folder;
  folder.write("data.yaml", text("kpt_shape: [2, 2]\nflip_idx: [1, 0]\n"));
  for (const char* name : {"a", "b"}) {
    folder.write(std::string("images/train/") + name + ".jpg", text("x"));
    folder.write(
        std::string("labels/train/") + name + ".txt",
        text(std::string("0 0.5 0.5 0.5 0.5 0.25 0.5 0.75 0.") + (name[0] == 'a' ? "1" : "2")));
  }
  DataOptions options{"yolo", folder.path(), "train", 0};
  options.listed = folder.write("list.txt", text("1\n"));
  const auto reader = open_reader(options);
  const Annotations& all = *reader->annotations();
  EXPECT_EQ(all.points, 2u);
  ASSERT_EQ(all.key_points.size(), 2u);
  EXPECT_FLOAT_EQ(all.key_points[1].y, 0.2F);
  EXPECT_EQ(all.flip_pairs, (std::vector<std::pair<std::size_t, std::size_t>>{{0, 1}}));
  folder.write("data.yaml", text("kpt_shape: [2, 2]\n"));
  EXPECT_NE(open_reader(options)->info().fingerprint, reader->info().fingerprint)
      << "mirrored images differ";
}

TEST(Yolo, BoxesChangeTheFingerprintAndStayWithTheSamplesOfASubset) {
  const TempFolder folder;
  for (const char* name : {"a", "b"}) {
    folder.write(std::string("images/train/") + name + ".jpg", text("x"));
    folder.write(std::string("labels/train/") + name + ".txt", text("0 0.5 0.5 0.5 0.5\n"));
  }
  DataOptions options{"yolo", folder.path(), "train", 0};
  options.listed = folder.write("list.txt", text("1\n"));
  const auto reader = open_reader(options);
  EXPECT_EQ(reader->annotations()->ends, std::vector<std::uint64_t>{1});
  EXPECT_EQ(reader->annotations()->image_ids, std::vector<std::int64_t>{1});
  EXPECT_TRUE(reader->annotations()->relative);
  folder.write("labels/train/b.txt", text("0 0.5 0.5 0.5 0.4\n"));
  EXPECT_NE(open_reader(options)->info().fingerprint, reader->info().fingerprint);
}

}  // namespace
}  // namespace millrace::pipeline
