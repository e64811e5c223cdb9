// Tests archives: the reader's samples, its choice of a split, and one test for each way in which
// an archive can be wrong.
#include "pipeline/readers/tar.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "millrace/reader.h"
#include "pipeline/readers/data_set.h"
#include "pipeline/readers/tar_index.h"
#include "tests/data/support.h"
#include "tests/data/tar_builder.h"

namespace millrace::pipeline {
namespace {

using test::Bytes;
using test::bytes_of;
using test::cut;
using test::expect_data_error;
using test::labels_of;
using test::TarBuilder;
using test::TempFolder;

std::unique_ptr<Reader> open(const std::string& path, const std::string& split = "train",
                             int classes = 0) {
  return open_reader({"tar", path, split, classes});
}

TarBuilder two_samples() {
  TarBuilder tar;
  tar.add("a/000.jpg", Bytes{1, 2, 3}).add("a/000.cls", "4");
  tar.add("a/001.PNG", Bytes{5}).add("a/001.json", R"({"label": 2, "text": "x"})");
  return tar;
}

TEST(Tar, WebDatasetSamples) {
  const TempFolder folder;
  TarBuilder tar;
  tar.add("./", "", '5');
  tar.add("./000.cls", " 4\n").add("./000.jpg", Bytes{1, 2, 3}).add("./000.txt", "a caption");
  tar.add("001.json", R"({"cls": 2})").add("001.seg.png", Bytes{9}).add("001.png", Bytes{5});
  tar.add(".hidden.jpg", Bytes{7}).add("._002.jpg", Bytes{7}).add("notes.txt", "x");
  const std::string path = folder.write("set.tar", tar.end());
  const auto reader = open(path);
  EXPECT_EQ(reader->info().count, 2u);
  EXPECT_TRUE(reader->info().encoded);
  EXPECT_EQ(reader->info().bytes, 4u);
  EXPECT_EQ(reader->info().classes.size(), 5u);
  EXPECT_EQ(bytes_of(*reader, 0), (Bytes{1, 2, 3}));
  EXPECT_EQ(bytes_of(*reader, 1), Bytes{5});
  EXPECT_EQ(labels_of(*reader), (std::vector<std::int64_t>{4, 2}));
  EXPECT_EQ(reader->name(1), path + " member 001.png");
  Location where;
  ASSERT_TRUE(reader->locate(0, where));
  EXPECT_EQ(std::string(where.path.data()), path);
  EXPECT_EQ(test::read_bytes(path)[where.offset + 2], 3);
}

TEST(Tar, NamesInEveryForm) {
  const TempFolder folder;
  const std::string deep = std::string(120, 'd') + "/" + std::string(130, 'n');
  TarBuilder tar;
  tar.long_name(deep + ".jpg").add("cut", Bytes{1});
  tar.long_name(deep + ".cls").add("cut", "1");
  tar.pax("path", deep + "p.jpg").add("cut", Bytes{2});
  tar.pax("path", deep + "p.cls").add("cut", "2");
  tar.header("u.jpg", 1, '0', std::string_view("ustar\0", 6), "prefix/of/it").contents({3});
  tar.header("u.cls", 1, '0', std::string_view("ustar\0", 6), "prefix/of/it")
      .contents(test::bytes_from("3"));
  tar.header("gnu.jpg", 1, '\0', std::string_view("ustar  \0", 8), "not a prefix").contents({4});
  tar.header("gnu.cls", 1, '0', std::string_view("ustar  \0", 8)).contents(test::bytes_from("0"));
  tar.header("v7.jpg", 1, '0', "").contents({5});
  tar.header("v7.cls", 1, '0', "").contents(test::bytes_from("5"));
  tar.add("globally", "26 comment=of no interest\n", 'g');
  tar.pax("size", "2").header("pax.jpg", 0).contents({6, 6});
  tar.add("pax.cls", "6");
  const auto reader = open(folder.write("set.tar", tar.end()));
  EXPECT_EQ(labels_of(*reader), (std::vector<std::int64_t>{1, 2, 3, 0, 5, 6}));
  EXPECT_NE(reader->name(0).find(deep + ".jpg"), std::string::npos);
  EXPECT_NE(reader->name(1).find(deep + "p.jpg"), std::string::npos);
  EXPECT_NE(reader->name(2).find(" prefix/of/it/u.jpg"), std::string::npos);
  EXPECT_NE(reader->name(3).find(" gnu.jpg"), std::string::npos);
  EXPECT_EQ(bytes_of(*reader, 5), (Bytes{6, 6}));
}

TEST(Tar, FoldersAreClassesWhereThereAreNoLabels) {
  const TempFolder folder;
  TarBuilder tar;
  for (const char* name : {"set/dog/2.jpg", "set/cat/1.jpg", "set/cat/deeper/3.png"})
    tar.add(name, Bytes{1});
  const auto reader = open(folder.write("set.tar", tar.end()));
  EXPECT_EQ(reader->info().classes, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(labels_of(*reader), (std::vector<std::int64_t>{1, 0, 0}));
  expect_data_error({"2 classes where 1 are set", "'dog'"},
                    [&] { open(folder.path("set.tar"), "train", 1); });

  TarBuilder lone;
  lone.add("1.jpg", Bytes{1}).add("2.jpg", Bytes{1});
  EXPECT_EQ(open(folder.write("pets.tar", lone.end()))->info().classes,
            std::vector<std::string>{"pets"});
  TarBuilder outside;
  outside.add("set/1.jpg", Bytes{1}).add("set/cat/2.jpg", Bytes{1});
  expect_data_error({"'set'", "outside the class folders"},
                    [&] { open(folder.write("x.tar", outside.end())); });
}

TEST(Tar, SplitsByFolderInside) {
  const TempFolder folder;
  TarBuilder tar;
  for (const char* name : {"s/train/cat/1.jpg", "s/train/dog/1.jpg", "s/val/cat/9.jpg"})
    tar.add(name, Bytes{1});
  const std::string path = folder.write("set.tar", tar.end());
  EXPECT_EQ(open(path)->info().count, 2u);
  const auto test = open(path, "test");
  EXPECT_EQ(test->info().count, 1u);
  EXPECT_NE(test->name(0).find("val/cat/9.jpg"), std::string::npos);

  // A class may be called train.
  TarBuilder vehicles;
  for (const char* name : {"car/1.jpg", "train/1.jpg"}) vehicles.add(name, Bytes{1});
  const std::string other = folder.write("vehicles.tar", vehicles.end());
  EXPECT_EQ(open(other)->info().classes, (std::vector<std::string>{"car", "train"}));
  EXPECT_THROW(open(other, "test"), MissingSplit);
}

TEST(Tar, ManyFilesAreOneSet) {
  const TempFolder folder;
  for (int shard = 0; shard < 3; ++shard) {
    TarBuilder tar;
    for (int i = 0; i <= shard; ++i)
      tar.add(std::to_string(i) + ".jpg", Bytes{static_cast<std::uint8_t>(10 * shard + i)})
          .add(std::to_string(i) + ".cls", std::to_string(shard));
    folder.write("train-00" + std::to_string(shard) + ".tar", tar.end());
  }
  folder.write("test-000.tar", two_samples().end());
  folder.write("training.tar", {1, 2, 3});
  const std::string names = "zero\none\ntwo\nthree\nfour\n";
  folder.write("classes.txt", test::bytes_from(names));
  const auto reader = open(folder.path());
  EXPECT_EQ(labels_of(*reader), (std::vector<std::int64_t>{0, 1, 1, 2, 2, 2}));
  EXPECT_EQ(bytes_of(*reader, 4), Bytes{21});
  EXPECT_EQ(reader->info().classes[4], "four");
  EXPECT_EQ(open(folder.path(), "test")->info().count, 2u);
  const auto some = open(folder.path("train-{001..002}.tar"));
  EXPECT_EQ(labels_of(*some), (std::vector<std::int64_t>{1, 1, 2, 2, 2}));
  EXPECT_EQ(open(folder.path("train-*.tar"))->info().count, 6u);
  EXPECT_EQ(open(folder.path("{test-000,train-000}.tar"))->info().count, 3u);
  EXPECT_NE(some->info().fingerprint, reader->info().fingerprint);
  expect_data_error({"train-003.tar", "No such file"},
                    [&] { open(folder.path("train-{000..003}.tar")); });
  expect_data_error({"no file matches"}, [&] { open(folder.path("x-*.tar")); });
  expect_data_error({"not a range"}, [&] { open(folder.path("x-{3..1}.tar")); });

  const TempFolder split_folders;
  split_folders.write("train/0.tar", two_samples().end());
  split_folders.write("valid/0.tar", two_samples().end());
  EXPECT_EQ(open(split_folders.path(), "test")->info().count, 2u);
  const TempFolder only_train;
  only_train.write("train-0.tar", two_samples().end());
  EXPECT_THROW(open(only_train.path(), "test"), MissingSplit);
  expect_data_error({"no archives"}, [&] { open(TempFolder().path()); });
}

TEST(Tar, BracesExpandInOrder) {
  EXPECT_EQ(expand_braces("a-{08..11}.tar"),
            (std::vector<std::string>{"a-08.tar", "a-09.tar", "a-10.tar", "a-11.tar"}));
  EXPECT_EQ(expand_braces("{x,y}{1..2}"), (std::vector<std::string>{"x1", "x2", "y1", "y2"}));
  EXPECT_EQ(expand_braces("plain{"), std::vector<std::string>{"plain{"});
  EXPECT_THROW(expand_braces("{0..999999999}"), DataError);
  EXPECT_THROW(expand_braces("{0..9999}{0..9999}"), DataError);
}

TEST(Tar, FingerprintFollowsNamesSizesAndLabels) {
  const auto print = [](const Bytes& bytes) { return index_tar("x", bytes).fingerprint; };
  const auto base = print(two_samples().end());
  EXPECT_EQ(print(two_samples().end()), base);
  TarBuilder label, name, size;
  label.add("a/000.jpg", Bytes{1, 2, 3}).add("a/000.cls", "5");
  name.add("a/00x.jpg", Bytes{1, 2, 3}).add("a/00x.cls", "4");
  size.add("a/000.jpg", Bytes{1, 2}).add("a/000.cls", "4");
  for (TarBuilder* tar : {&label, &name, &size}) {
    tar->add("a/001.PNG", Bytes{5}).add("a/001.json", R"({"label": 2, "text": "x"})");
    EXPECT_NE(print(tar->end()), base);
  }
}

// ---- what is wrong with an archive

void expect_refused(const Bytes& bytes, std::initializer_list<std::string> parts) {
  expect_data_error(parts, [&] { index_tar("some.tar", bytes); });
}

TEST(BadTar, TruncatedAnywhere) {
  const Bytes whole = two_samples().end();
  for (std::size_t size = 1; size + 512 < whole.size(); size += 61)
    expect_refused(cut(whole, size), {"some.tar"});
  expect_refused(cut(whole, 512 + 512 + 100), {"at byte 1024", "truncated", "1124 bytes"});
  expect_refused(cut(whole, 514), {"at byte 0", "truncated", "a/000.jpg", "announces 3 bytes"});
  expect_refused(cut(whole, two_samples().raw().size()), {"truncated", "without its end mark"});
  expect_refused({}, {"an empty file"});
  expect_refused(Bytes(1024), {"holds no image"});
}

TEST(BadTar, WrongChecksum) {
  TarBuilder tar = two_samples();
  Bytes bytes = tar.end();
  bytes[1024 + 3] ^= 1;
  expect_refused(bytes, {"at byte 1024", "wrong checksum"});
}

TEST(BadTar, NotAnArchive) {
  const TempFolder folder;
  const auto hint = [&](const Bytes& bytes) {
    try {
      index_tar("some.tar", bytes);
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("not a tar archive"), std::string::npos);
      return error.hint();
    }
    return std::string("no error");
  };
  Bytes packed = test::gzip(two_samples().end());
  packed.resize(2000);
  EXPECT_NE(hint(packed).find("gunzip"), std::string::npos);
  Bytes xz = test::bytes_from(
      "\xfd"
      "7zXZ");
  xz.resize(600);
  EXPECT_NE(hint(xz).find("unxz"), std::string::npos);
  EXPECT_NE(hint(Bytes(600, 'x')).find("check data.path"), std::string::npos);
}

TEST(BadTar, PathTricks) {
  for (const char* name : {"../x.jpg", "a/../../x.jpg", "/etc/x.jpg", "a/.."}) {
    TarBuilder tar;
    tar.add(name, Bytes{1});
    expect_refused(tar.end(), {"at byte 0", name, "leads out of the archive"});
  }
  for (const auto& [type, what] : {std::pair('1', "hard link"), std::pair('2', "symbolic link"),
                                   std::pair('3', "device"), std::pair('6', "pipe")}) {
    TarBuilder tar;
    tar.add("a/x.jpg", Bytes{1}).add("a/x.cls", "1");
    tar.header("a/y.jpg", 0, type);
    expect_refused(tar.end(), {"at byte 2048", "'a/y.jpg'", what});
    TarBuilder passed_over;
    passed_over.header("README", 0, type).add("x.jpg", Bytes{1}).add("x.cls", "1");
    EXPECT_EQ(index_tar("some.tar", passed_over.end()).samples.size(), 1u);
  }
  TarBuilder line_break;
  line_break.add("../a\nb.jpg", Bytes{1});
  expect_refused(line_break.end(), {"'../a\\nb.jpg'"});
}

TEST(BadTar, LabelsThatAreNone) {
  for (const char* text : {"", "cat", "-1", "1.5", "99999999999999999999", "16777216"}) {
    TarBuilder tar;
    tar.add("x.jpg", Bytes{1}).add("x.cls", text);
    expect_refused(tar.end(), {"at byte 1024", "'x.cls'", "label"});
  }
  for (const char* text : {"{", R"({"label": "cat"})", R"({"cls": -2})"}) {
    TarBuilder tar;
    tar.add("x.jpg", Bytes{1}).add("x.json", text);
    expect_refused(tar.end(), {"at byte 1024", "'x.json'"});
  }
  TarBuilder two;
  two.add("x.jpg", Bytes{1}).add("x.cls", "1").add("x.json", R"({"label": 2})");
  expect_refused(two.end(), {"at byte 2048", "label 2", "says 1"});
}

TEST(BadTar, LabelMissing) {
  const TempFolder folder;
  TarBuilder tar = two_samples();
  tar.add("a/002.jpg", Bytes{1});
  const std::string path = folder.write("set.tar", tar.end());
  expect_data_error({path, "at byte 4096", "'a/002.jpg' has no label", "1 of 3"},
                    [&] { open(path); });
  TarBuilder no_label;
  no_label.add("a/1.jpg", Bytes{1}).add("a/1.json", R"({"caption": "x"})");
  expect_data_error({"'a/1.jpg' has no label"},
                    [&] { open(folder.write("set.tar", no_label.end())); });
  TarBuilder apart;
  apart.add("1.jpg", Bytes{1}).add("2.jpg", Bytes{1}).add("1.cls", "1").add("2.cls", "1");
  expect_refused(apart.end(), {"at byte 2048", "a label for '1' without an image"});
}

TEST(BadTar, KeysThatComeTwice) {
  TarBuilder tar = two_samples();
  tar.add("a/000.jpeg", Bytes{1}).add("a/000.cls", "1");
  expect_refused(tar.end(), {"at byte 4096", "'a/000.jpeg' comes a second time", "byte 0"});
  TarBuilder side_by_side;
  side_by_side.add("x.jpg", Bytes{1}).add("x.png", Bytes{2}).add("x.cls", "1");
  expect_refused(side_by_side.end(), {"at byte 0", "2 images are called 'x'"});
  TarBuilder dots;
  dots.add("x.1.jpg", Bytes{1}).add("x.2.jpg", Bytes{2});
  expect_refused(dots.end(), {"2 images are called 'x'"});
}

TEST(BadTar, LabelOutOfRange) {
  const TempFolder folder;
  const std::string path = folder.write("set.tar", two_samples().end());
  expect_data_error({path, "a/000.jpg", "label 4 is not below 3 classes"},
                    [&] { open(path, "train", 3); });
  EXPECT_EQ(open(path, "train", 7)->info().classes.size(), 7u);
}

TEST(BadTar, DamagedHeaders) {
  TarBuilder size;
  size.header("x.jpg", 1);
  for (std::size_t i = 0; i < 8; ++i) size.raw()[124 + i] = '9';
  // Writes the checksum of the changed block.
  Bytes& block = size.raw();
  std::fill(block.begin() + 148, block.begin() + 156, ' ');
  char octal[8];
  std::snprintf(octal, sizeof octal, "%06o",
                std::accumulate(block.begin(), block.begin() + 512, 0u));
  std::copy(octal, octal + 7, block.begin() + 148);
  expect_refused(size.contents({1}).end(), {"at byte 0", "size of a member is not a number"});

  TarBuilder huge;
  huge.header("x.jpg", 0x1ffffffff);
  expect_refused(huge.end(), {"at byte 0", "announces 8589934591 bytes"});
  TarBuilder pax;
  pax.add("x", "12 path", 'x').add("x.jpg", Bytes{1});
  expect_refused(pax.end(), {"at byte 0", "damaged pax header"});
  TarBuilder pax_size;
  pax_size.pax("size", "-1").add("x.jpg", Bytes{1});
  expect_refused(pax_size.end(), {"size in a pax header"});
  TarBuilder sparse;
  sparse.pax("GNU.sparse.major", "1").add("x.jpg", Bytes{1});
  expect_refused(sparse.end(), {"holes"});
  TarBuilder unknown;
  unknown.add("x.jpg", Bytes{1}, 'Q');
  expect_refused(unknown.end(), {"unknown kind 0x51"});
  TarBuilder alone;
  alone.add("x.jpg", Bytes{1}).long_name("y");
  expect_refused(alone.end(), {"a member should follow"});
  TarBuilder joined;
  joined.add("x.jpg", Bytes{1});
  Bytes twice = joined.end();
  const Bytes once = twice;
  twice.insert(twice.end(), once.begin(), once.end());
  expect_refused(twice, {"at byte 2048", "behind the archive's end mark"});
  Bytes padded = once;
  padded.resize(10'240);
  EXPECT_EQ(index_tar("some.tar", padded).samples.size(), 1u);
}

}  // namespace
}  // namespace millrace::pipeline
