// Tests readers: their samples, and one test for each way in which a data set can be wrong.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/open_file.h"
#include "millrace/loader.h"
#include "millrace/reader.h"
#include "tests/data/support.h"

namespace millrace::pipeline {
namespace {

namespace fs = test::fs;
using test::Bytes;
using test::bytes_of;
using test::cut;
using test::expect_data_error;
using test::open;
using test::TempFolder;

TEST(OpenReader, RefusesUnknownReaderWithTheNearestName) {
  try {
    open_reader({"foldr", "x", "train", 0});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "data.reader: unknown reader 'foldr'; choose one of idx, cifar, folder, tar, "
                 "manifest, coco, yolo, synthetic");
    EXPECT_EQ(error.hint(), "did you mean folder?");
  }
}

TEST(OpenReader, AFileThatIsTooLongFailsByItself) {
  const TempFolder folder;
  folder.write("a/1.jpg", {1});
  folder.write("a/2.jpg", {2});
  std::error_code none;  // sparse; some file systems cannot hold such a file
  fs::resize_file(folder.path("a/1.jpg"), std::uintmax_t{5} << 30, none);
  if (none) GTEST_SKIP() << none.message();
  const std::string list = "path,label\na/1.jpg,0\na/2.jpg,0\n";
  folder.write("m.csv", Bytes(list.begin(), list.end()));
  for (const std::string name : {"folder", "manifest"}) {
    const auto reader =
        open_reader({name, folder.path(name == "folder" ? "" : "m.csv"), "train", 0});
    expect_data_error({"a/1.jpg", "too long for an image"}, [&] { bytes_of(*reader, 0); });
    EXPECT_EQ(bytes_of(*reader, 1), Bytes{2});
  }
}

TEST(OpenReader, WhatIsMadeUpBlamesNoFolder) {
  const auto reader = open_reader({"synthetic", "/data/of-another", "train", 0});
  EXPECT_EQ(reader->info().path, "synthetic");
  LoaderOptions options;
  options.batch = 100'000;
  test::expect_error(Exit::usage, {"larger than the data set: synthetic has 60000 train samples"},
                     [&] { check_batch(options, *reader); });
}

TEST(OpenReader, MissingPathSaysHowToGetASet) {
  for (const char* reader : {"idx", "cifar", "folder"}) {
    expect_data_error({"no-such-folder", "No such file"}, [&] {
      open_reader({reader, "no-such-folder", "train", 0});
    });
    expect_data_error({"data.path is empty"}, [&] { open_reader({reader, "", "train", 0}); });
  }
  const TempFolder folder;
  const std::string file = folder.write("file", {1});
  expect_data_error({file, "not a folder"}, [&] { open_reader({"idx", file, "train", 0}); });
}

// ---- CIFAR

Bytes cifar(const Bytes& labels, std::size_t label_bytes = 1) {
  Bytes bytes;
  for (const std::uint8_t label : labels) {
    if (label_bytes == 2) bytes.push_back(19);  // the coarse label
    bytes.push_back(label);
    for (int i = 0; i < 3072; ++i) bytes.push_back(static_cast<std::uint8_t>(i / 1024 + label));
  }
  return bytes;
}

void write_cifar10(const TempFolder& folder, const std::string& below = "") {
  for (int batch = 1; batch <= 5; ++batch)
    folder.write(below + "data_batch_" + std::to_string(batch) + ".bin",
                 cifar({static_cast<std::uint8_t>(batch), 0}));
}

TEST(Cifar, TenAcrossItsFiles) {
  const TempFolder folder;
  write_cifar10(folder, "cifar-10-batches-bin/");
  const std::string names =
      "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n";
  folder.write("cifar-10-batches-bin/batches.meta.txt", {names.begin(), names.end()});
  const auto reader = open(folder, "cifar");
  EXPECT_EQ(reader->info().count, 10u);
  EXPECT_EQ(reader->info().size, (Size{32, 32}));
  EXPECT_EQ(reader->info().channels, 3);
  EXPECT_TRUE(reader->info().planar);
  EXPECT_EQ(reader->info().classes[9], "truck");
  Buffer scratch;
  const Sample sample = reader->read(6, scratch);
  EXPECT_EQ(sample.label, 4);
  EXPECT_EQ(sample.bytes.size(), 3072u);
  EXPECT_EQ(sample.bytes[0], 4);
  EXPECT_EQ(sample.bytes[3071], 6);
  EXPECT_NE(reader->name(7).find("data_batch_4.bin record 1"), std::string::npos);
}

TEST(Cifar, HundredTakesTheFineLabel) {
  const TempFolder folder;
  folder.write("test.bin", cifar({7, 99}, 2));
  const auto reader = open(folder, "cifar", "test");
  EXPECT_EQ(reader->info().classes.size(), 100u);
  EXPECT_EQ(reader->info().classes[42], "42");
  Buffer scratch;
  EXPECT_EQ(reader->read(1, scratch).label, 99);
  EXPECT_EQ(reader->read(1, scratch).bytes[0], 99);
}

TEST(Cifar, BadFiles) {
  const TempFolder folder;
  expect_data_error({"no CIFAR files for split 'train'"}, [&] { open(folder, "cifar"); });
  write_cifar10(folder);
  expect_data_error({"no CIFAR files for split 'test'"}, [&] { open(folder, "cifar", "test"); });

  folder.write("data_batch_3.bin", cut(cifar({1, 2}), 6000));
  expect_data_error({"data_batch_3.bin", "truncated", "6000 bytes", "3073"},
                    [&] { open(folder, "cifar"); });
  folder.write("data_batch_3.bin", {});
  expect_data_error({"data_batch_3.bin", "holds no images"}, [&] { open(folder, "cifar"); });
  folder.write("data_batch_3.bin", cifar({1, 10}));
  expect_data_error({"data_batch_3.bin", "label 10 at index 1", "10 classes"},
                    [&] { open(folder, "cifar"); });
  fs::remove(folder.path("data_batch_3.bin"));
  expect_data_error({"data_batch_3.bin", "No such file"}, [&] { open(folder, "cifar"); });
}

// ---- folder

TEST(Folder, SortsBytewiseAndPassesOverTheRest) {
  const TempFolder folder;
  folder.write("train/b/2.jpg", {1});
  folder.write("train/b/10.JPG", {2, 2});
  folder.write("train/b/.hidden.jpg", {3});
  folder.write("train/b/notes.txt", {3});
  folder.write("train/B/\xc3\xa9.WebP", {4});
  folder.write("train/B/z.tiff", {5});
  folder.write("train/.git/x.png", {6});
  folder.write("train/readme.png.txt", {7});
  const auto reader = open(folder, "folder");
  EXPECT_EQ(reader->info().classes, (std::vector<std::string>{"B", "b"}));
  std::vector<std::string> names;
  for (std::uint64_t i = 0; i < reader->info().count; ++i)
    names.push_back(reader->name(i).substr(folder.path().size()));
  EXPECT_EQ(names, (std::vector<std::string>{"/train/B/z.tiff", "/train/B/\xc3\xa9.WebP",
                                             "/train/b/10.JPG", "/train/b/2.jpg"}));
  Buffer scratch;
  EXPECT_EQ(bytes_of(*reader, 2), (Bytes{2, 2}));
  EXPECT_EQ(reader->read(2, scratch).label, 1);
  EXPECT_EQ(reader->read(1, scratch).label, 0);
  EXPECT_TRUE(reader->info().encoded);
}

TEST(Folder, TakesFoldersBelowAClass) {
  const TempFolder folder;
  for (const char* name : {"a/2.png", "a/10/1.png", "a/10/sub/3.png", "a/.hidden/4.png", "b/1.png"})
    folder.write(name, {1});
  const auto reader = open(folder, "folder");
  EXPECT_EQ(reader->info().classes, (std::vector<std::string>{"a", "b"}));
  std::vector<std::string> names;
  for (std::uint64_t i = 0; i < reader->info().count; ++i)
    names.push_back(reader->name(i).substr(folder.path().size()));
  EXPECT_EQ(names,
            (std::vector<std::string>{"/a/10/1.png", "/a/10/sub/3.png", "/a/2.png", "/b/1.png"}));
  EXPECT_EQ(bytes_of(*reader, 1), Bytes{1});
  fs::create_directory_symlink("..", folder.path("a/10/back"));
  expect_data_error({"nested more than 16 deep"}, [&] { open(folder, "folder"); });
}

TEST(Folder, FindsItsSplit) {
  const TempFolder folder;
  folder.write("train/a/1.png", {1});
  folder.write("val/a/2.png", {1});
  EXPECT_NE(open(folder, "folder", "test")->name(0).find("val/a/2.png"), std::string::npos);
  const TempFolder flat;
  flat.write("cats/1.png", {1});
  flat.write("dogs/1.png", {1});
  EXPECT_EQ(open(flat, "folder")->info().count, 2u);
  expect_data_error({"no folder for split 'test'", "test, val, valid"},
                    [&] { open(flat, "folder", "test"); });
  const TempFolder lone;
  lone.write("pets/1.png", {1});
  lone.write("pets/2.png", {1});
  const auto reader = open_reader({"folder", lone.path("pets/"), "train", 0});
  EXPECT_EQ(reader->info().classes, std::vector<std::string>{"pets"});
  EXPECT_EQ(reader->info().count, 2u);
  EXPECT_EQ(bytes_of(*reader, 1), Bytes{1});
}

TEST(Folder, FingerprintFollowsNamesAndSizesButNotThePlace) {
  const TempFolder one, two;
  for (const TempFolder* folder : {&one, &two}) {
    folder->write("train/a/1.png", {1});
    folder->write("train/b/2.png", {1, 2});
  }
  const auto before = open(one, "folder")->info().fingerprint;
  EXPECT_EQ(open(two, "folder")->info().fingerprint, before);
  two.write("train/b/2.png", {1, 2, 3});
  EXPECT_NE(open(two, "folder")->info().fingerprint, before);
  fs::rename(one.path("train/a/1.png"), one.path("train/a/3.png"));
  EXPECT_NE(open(one, "folder")->info().fingerprint, before);
}

TEST(Folder, EmptyClassesAndEmptySets) {
  const TempFolder folder;
  expect_data_error({"no class folders and no images"}, [&] { open(folder, "folder"); });
  folder.write("train/a/1.png", {1});
  folder.write("train/empty/readme.txt", {1});
  expect_data_error({"train/empty", "holds no image"}, [&] { open(folder, "folder"); });
}

TEST(Folder, MoreClassesThanSet) {
  const TempFolder folder;
  for (const char* name : {"a/1.png", "b/1.png", "c/1.png"}) folder.write(name, {1});
  expect_data_error({"3 class folders where 2 classes", "'c'"},
                    [&] { open(folder, "folder", "train", 2); });
}

TEST(Folder, RefusesWhatIsNoFileWithoutHanging) {
  const TempFolder folder;
  folder.write("a/1.png", {1});
  ASSERT_EQ(mkfifo(folder.path("a/2.png").c_str(), 0600), 0);
  expect_data_error({"a/2.png", "not a regular file"}, [&] { open(folder, "folder"); });
  expect_data_error({"a/2.png", "not a regular file"},
                    [&] { base::open_regular(folder.path("a/2.png")); });
  fs::remove(folder.path("a/2.png"));
  fs::create_symlink("nowhere", folder.path("a/3.png"));
  expect_data_error({"a/3.png", "No such file"}, [&] { open(folder, "folder"); });
  fs::remove(folder.path("a/3.png"));
  fs::create_symlink(folder.path("a/1.png"), folder.path("a/4.png"));
  EXPECT_EQ(bytes_of(*open(folder, "folder"), 1), Bytes{1});
}

TEST(Folder, FilesThatChangeOrVanishWhileInUse) {
  const TempFolder folder;
  folder.write("a/1.png", {1, 2, 3});
  const auto reader = open(folder, "folder");
  folder.write("a/1.png", {1, 2});
  expect_data_error({"a/1.png", "changed", "2 bytes, listed with 3"},
                    [&] { bytes_of(*reader, 0); });
  fs::remove(folder.path("a/1.png"));
  expect_data_error({"a/1.png", "cannot be read"}, [&] { bytes_of(*reader, 0); });
  ASSERT_EQ(mkfifo(folder.path("a/1.png").c_str(), 0600), 0);
  expect_data_error({"a/1.png", "not a regular file"}, [&] { bytes_of(*reader, 0); });
}

}  // namespace
}  // namespace millrace::pipeline
