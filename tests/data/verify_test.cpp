// Tests `data verify`: it finds every planted fault, and continues after the first.
#include <gtest/gtest.h>

#include <algorithm>

#include "millrace/reader.h"
#include "tests/data/support.h"
#include "tools/data/data.h"

namespace millrace::pipeline {
namespace {

namespace fs = test::fs;
using test::Bytes;
using test::expect_data_error;
using test::idx_images;
using test::idx_labels;
using test::read_bytes;
using test::TempFolder;

tools::VerifyReport verify(const TempFolder& folder, int classes = 0) {
  return tools::verify_data({folder.path(), classes, 1'000'000, 2, {}});
}

bool has_problem(const tools::VerifyReport& report, const std::string& where,
                 const std::string& what) {
  return std::any_of(report.problems.begin(), report.problems.end(), [&](const auto& problem) {
    const std::string line = problem.where + " " + problem.what;
    return line.find(where) != std::string::npos && line.find(what) != std::string::npos;
  });
}

TEST(Verify, SoundIdx) {
  const TempFolder folder;
  folder.write("train-images-idx3-ubyte", idx_images(3));
  folder.write("train-labels-idx1-ubyte", idx_labels({1, 0, 1}));
  const tools::VerifyReport report = verify(folder);
  EXPECT_EQ(report.kind, "idx");
  EXPECT_TRUE(report.problems.empty());
  ASSERT_EQ(report.splits.size(), 1u);
  EXPECT_EQ(report.splits[0].name, "train");
  EXPECT_EQ(report.splits[0].count, 3u);
  EXPECT_EQ(report.splits[0].class_counts, (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(report.splits[0].largest, (Size{3, 4}));
  EXPECT_EQ(report.splits[0].fingerprint,
            open_reader({"idx", folder.path(), "train", 0})->info().fingerprint);
}

TEST(Verify, IdxListsEveryProblem) {
  const TempFolder folder;
  Bytes images = idx_images(3);
  images.pop_back();
  folder.write("train-images-idx3-ubyte", images);
  folder.write("train-labels-idx1-ubyte", {1, 2});
  folder.write("t10k-images-idx3-ubyte", idx_images(2));
  folder.write("t10k-labels-idx1-ubyte", idx_labels({3, 10}));
  const tools::VerifyReport report = verify(folder, 10);
  EXPECT_EQ(report.problems.size(), 3u);
  EXPECT_TRUE(has_problem(report, "train-images", "truncated"));
  EXPECT_TRUE(has_problem(report, "train-labels", "truncated"));
  EXPECT_TRUE(has_problem(report, "t10k-labels", "label 10 at index 1"));
}

TEST(Verify, CifarListsEveryProblem) {
  const TempFolder folder;
  for (const char* name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin"})
    folder.write(name, Bytes(3073));
  folder.write("data_batch_2.bin", Bytes(3000));
  folder.write("data_batch_4.bin", Bytes(3073, 77));
  folder.write("test_batch.bin", Bytes(2 * 3073));
  const tools::VerifyReport report = verify(folder);
  EXPECT_EQ(report.kind, "cifar");
  EXPECT_EQ(report.problems.size(), 3u);
  EXPECT_TRUE(has_problem(report, "data_batch_2.bin", "truncated"));
  EXPECT_TRUE(has_problem(report, "data_batch_4.bin", "label 77"));
  EXPECT_TRUE(has_problem(report, "data_batch_5.bin", "No such file"));
  ASSERT_EQ(report.splits.size(), 1u);
  EXPECT_EQ(report.splits[0].count, 2u);
}

TEST(Verify, FolderListsEveryProblem) {
  const TempFolder folder;
  tools::PhotosOptions options;
  options.path = folder.path();
  options.count = 12;
  options.classes = 3;
  tools::make_photos(options);
  const std::string cut = "train/class001/000002.jpg";
  Bytes bytes = read_bytes(folder.path(cut));
  bytes.resize(bytes.size() / 2);
  folder.write(cut, bytes);
  folder.write("train/class000/text.png", {'h', 'i'});
  fs::create_directory(folder.path("test/empty"));
  const tools::VerifyReport report = verify(folder);
  EXPECT_EQ(report.problems.size(), 4u);
  EXPECT_TRUE(has_problem(report, cut, "jpeg: Premature end"));
  EXPECT_TRUE(has_problem(report, "class000/text.png", "no decoder takes this image"));
  EXPECT_TRUE(has_problem(report, "test/empty", "holds no image"));
  EXPECT_TRUE(has_problem(report, folder.path(), "train has 3 class folders and test 4"));
  EXPECT_EQ(report.splits.size(), 2u);
}

TEST(Verify, AppliesTheLimitsOfARun) {
  const TempFolder folder;
  folder.write("a/fits.bmp", test::bmp(1000, 1000));
  folder.write("a/large.bmp", test::bmp(1001, 1000));
  folder.write("a/wide.bmp", test::bmp(65'536, 1));
  const tools::VerifyReport report = verify(folder);
  EXPECT_EQ(report.problems.size(), 2u);
  EXPECT_TRUE(has_problem(report, "a/large.bmp", "more than data.max_pixels=1000000"));
  EXPECT_TRUE(has_problem(report, "a/wide.bmp", "sides of more than 65535 pixels"));
}

TEST(Verify, NothingThere) {
  const TempFolder folder;
  EXPECT_TRUE(has_problem(verify(folder), folder.path(), "no class folders and no images"));
  expect_data_error({"No such file"}, [&] { tools::verify_data({folder.path("x"), 0, 1, 1, {}}); });
}

}  // namespace
}  // namespace millrace::pipeline
