// Tests the IDX reader: its samples, and one test for each way in which its files can be wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "base/folder.h"
#include "millrace/reader.h"
#include "tests/data/support.h"

namespace millrace::pipeline {
namespace {

using test::Bytes;
using test::bytes_of;
using test::cut;
using test::expect_data_error;
using test::gzip;
using test::idx_images;
using test::idx_labels;
using test::open;
using test::TempFolder;

const std::string kImages = "train-images-idx3-ubyte";
const std::string kLabels = "train-labels-idx1-ubyte";

TEST(Idx, DeliversImagesAndLabelsWithoutCopying) {
  const TempFolder folder;
  folder.write(kImages, idx_images(3));
  folder.write(kLabels, idx_labels({2, 0, 4}));
  const auto reader = open(folder, "idx");
  EXPECT_EQ(reader->info().count, 3u);
  EXPECT_EQ(reader->info().size, (Size{3, 4}));
  EXPECT_EQ(reader->info().channels, 1);
  EXPECT_FALSE(reader->info().encoded);
  EXPECT_EQ(reader->info().classes, (std::vector<std::string>{"0", "1", "2", "3", "4"}));
  EXPECT_NE(reader->name(2).find(kImages + " image 2"), std::string::npos);

  Buffer scratch;
  const Sample first = reader->read(0, scratch), last = reader->read(2, scratch);
  EXPECT_EQ(last.bytes.data(), first.bytes.data() + 24);
  EXPECT_EQ(scratch.data(), nullptr);
  EXPECT_EQ(first.label, 2);
  EXPECT_EQ(last.label, 4);
  for (std::size_t i = 0; i < 12; ++i)
    EXPECT_EQ(last.bytes[i], static_cast<std::uint8_t>((24 + i) * 7));
}

TEST(Idx, SlackBehindTheLastSampleIsReadable) {
  const TempFolder folder;
  folder.write(kImages, idx_images(1, 4096 - 16, 1));  // ends with its page
  folder.write(kLabels, idx_labels({0}));
  const auto reader = open(folder, "idx");
  Buffer scratch;
  const std::span<const std::uint8_t> bytes = reader->read(0, scratch).bytes;
  EXPECT_EQ(
      std::accumulate(bytes.data() + bytes.size(), bytes.data() + bytes.size() + kTailSlack, 0), 0);
}

TEST(Idx, GzipAndOtherSpellingsAreTheSameSet) {
  const Bytes images = idx_images(5), labels = idx_labels({1, 2, 0, 1, 1});
  const TempFolder plain, packed, dotted, members;
  plain.write(kImages, images);
  plain.write(kLabels, labels);
  packed.write("FashionMNIST/raw/" + kImages + ".gz", gzip(images));
  packed.write("FashionMNIST/raw/" + kLabels + ".gz", gzip(labels));
  dotted.write("MNIST/raw/train-images.idx3-ubyte", images);
  dotted.write("MNIST/raw/train-labels.idx1-ubyte", labels);
  Bytes two = gzip({images.begin(), images.begin() + 30});
  const Bytes second = gzip({images.begin() + 30, images.end()});
  two.insert(two.end(), second.begin(), second.end());
  members.write("raw/" + kImages + ".gz", two);
  members.write("raw/" + kLabels, labels);

  const auto reference = open(plain, "idx");
  for (const TempFolder* folder : {&packed, &dotted, &members}) {
    const auto reader = open(*folder, "idx");
    EXPECT_EQ(reader->info().fingerprint, reference->info().fingerprint);
    for (std::uint64_t i = 0; i < 5; ++i) EXPECT_EQ(bytes_of(*reader, i), bytes_of(*reference, i));
  }
}

TEST(Idx, FingerprintFollowsEveryByte) {
  const TempFolder folder;
  folder.write(kImages, idx_images(2));
  folder.write(kLabels, idx_labels({0, 1}));
  const auto before = open(folder, "idx")->info().fingerprint;
  folder.write(kLabels, idx_labels({1, 1}));
  EXPECT_NE(open(folder, "idx")->info().fingerprint, before);
}

TEST(Idx, TestSplitIsCalledT10k) {
  const TempFolder folder;
  folder.write("t10k-images-idx3-ubyte", idx_images(2));
  folder.write("t10k-labels-idx1-ubyte", idx_labels({0, 1}));
  EXPECT_EQ(open(folder, "idx", "test")->info().count, 2u);
  expect_data_error({"no train-images-idx3-ubyte[.gz]"}, [&] { open(folder, "idx"); });
}

TEST(Idx, MissingLabels) {
  const TempFolder folder;
  folder.write(kImages, idx_images(2));
  expect_data_error({"no train-labels-idx1-ubyte[.gz] beside", kImages},
                    [&] { open(folder, "idx"); });
}

/// Expects an error for a broken images file beside good labels.
void expect_bad_images(const Bytes& images, std::initializer_list<std::string> parts,
                       const std::string& ending = "") {
  const TempFolder folder;
  folder.write(kLabels, idx_labels({0, 1}));
  const std::string file = folder.write(kImages + ending, images);
  expect_data_error(parts, [&] { open(folder, "idx"); });
  expect_data_error({file}, [&] { open(folder, "idx"); });
}

TEST(Idx, WrongMagic) {
  Bytes images = idx_images(2);
  images[3] = 1;
  expect_bad_images(images, {"wrong magic: expected 00000803", "found 00000801"});
  expect_bad_images(gzip(idx_images(2)), {"wrong magic", "found 1f8b"});
}

TEST(Idx, Truncated) {
  expect_bad_images(cut(idx_images(2), 39), {"truncated", "39 bytes", "makes 40"});
  expect_bad_images(cut(idx_images(2), 11), {"truncated", "11 bytes", "header alone takes 16"});
  expect_bad_images({}, {"truncated", "0 bytes"});
}

TEST(Idx, LongerThanAnnounced) {
  expect_bad_images(cut(idx_images(2), 41), {"longer than announced", "41 bytes", "makes 40"});
  expect_bad_images(gzip(cut(idx_images(2), 41)), {"longer than the 40 bytes"}, ".gz");
}

TEST(Idx, NoImages) { expect_bad_images(idx_images(0), {"holds no images"}); }

TEST(Idx, ImpossibleSizes) {
  expect_bad_images(idx_images(2, 0, 3), {"images of 3x0"});
  Bytes huge = idx_images(2);
  std::fill(huge.begin() + 4, huge.end(), std::uint8_t{0xff});
  expect_bad_images(huge, {"4294967295x4294967295"});
}

TEST(Idx, DamagedGzip) {
  const Bytes good = gzip(idx_images(2));
  expect_bad_images(cut(good, good.size() / 2), {"gzip: ends early"}, ".gz");
  expect_bad_images(cut(good, good.size() - 3), {"gzip: ends early"}, ".gz");
  expect_bad_images({}, {"gzip: ends early"}, ".gz");
  expect_bad_images(idx_images(2), {"gzip: incorrect header check"}, ".gz");
  expect_bad_images(cut(good, good.size() + 5), {"gzip: 5 bytes that are not gzip behind"}, ".gz");
  Bytes checksum = good;
  checksum[checksum.size() - 6] ^= 1;
  expect_bad_images(checksum, {"gzip: incorrect data check"}, ".gz");
  expect_bad_images(gzip(cut(idx_images(2), 39)), {"truncated: 39 bytes", "announces 40"}, ".gz");
  expect_bad_images(gzip(cut(idx_images(2), 9)), {"truncated: 9 bytes"}, ".gz");
}

TEST(Idx, HeaderThatAnnouncesMoreThanGzipCanHoldTakesNoMemory) {
  Bytes bomb = idx_images(2);
  bomb[4] = 0xff;
  expect_bad_images(gzip(bomb), {"more than", "bytes of gzip can hold"}, ".gz");
}

TEST(Idx, CountsThatDiffer) {
  const TempFolder folder;
  folder.write(kImages, idx_images(3));
  folder.write(kLabels, idx_labels({0, 1}));
  expect_data_error({kLabels, "2 labels", kImages, "3 images"}, [&] { open(folder, "idx"); });
}

TEST(Idx, LabelOutOfRangeNamesFileAndIndex) {
  const TempFolder folder;
  folder.write(kImages, idx_images(4));
  folder.write(kLabels, idx_labels({0, 9, 12, 10}));
  expect_data_error({kLabels, "label 12 at index 2", "10 classes", "2 such labels"},
                    [&] { open(folder, "idx", "train", 10); });
  EXPECT_EQ(open(folder, "idx", "train", 20)->info().classes.size(), 20u);
  EXPECT_EQ(open(folder, "idx")->info().classes.size(), 13u);
}

TEST(Idx, RealMnist) {
  const char* data = std::getenv("MILLRACE_DATA");
  if (data == nullptr || !base::is_folder(std::string(data) + "/mnist"))
    GTEST_SKIP() << "MILLRACE_DATA names no folder with mnist/ in it: real MNIST is not tested";
  const auto reader = open_reader({"idx", std::string(data) + "/mnist", "test", 10});
  EXPECT_EQ(reader->info().count, 10'000u);
  EXPECT_EQ(reader->info().size, (Size{28, 28}));
  Buffer scratch;
  std::vector<int> labels;
  for (std::uint64_t i = 0; i < 8; ++i)
    labels.push_back(static_cast<int>(reader->read(i, scratch).label));
  EXPECT_EQ(labels, (std::vector<int>{7, 2, 1, 0, 4, 1, 4, 9}));
}

}  // namespace
}  // namespace millrace::pipeline
