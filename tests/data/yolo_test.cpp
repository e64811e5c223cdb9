// Tests YOLO's label files, the errors that a line can have, and the layouts of sets.
#include <gtest/gtest.h>

#include "millrace/reader.h"
#include "pipeline/readers/data_set.h"
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
  if (!none) refused(folder, {"a.txt: 104857600 bytes, too long for a label file"});
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
