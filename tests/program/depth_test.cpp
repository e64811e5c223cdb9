// Images of 16 bits and of floats with other than three channels through the program
// (decode.depth): read, packed, inspected and trained.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

/// Writes a NumPy array of 12x10x4 whose levels rise from image to image of a class.
template <class T>
void write_npy(const std::filesystem::path& file, const char* type, int label, int number) {
  constexpr int kHeight = 12, kWidth = 10, kChannels = 4;
  const std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}, {}, {}), }}\n", type,
                  kHeight, kWidth, kChannels);
  std::filesystem::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::binary);
  out << "\x93NUMPY" << '\1' << '\0' << static_cast<char>(header.size()) << '\0' << header;
  for (int i = 0; i < kHeight * kWidth * kChannels; ++i) {
    const auto value = static_cast<T>((label + 1) * 9000 + number * 37 + i % 97);
    out.write(reinterpret_cast<const char*>(&value), sizeof value);
  }
}

class Depth : public ProgramTest {
 protected:
  Depth() {
    for (const char* split : {"train", "test"})
      for (int i = 0; i < 24; ++i) {
        const std::string place = fmt::format("{}/{}/{}.npy", split, i % 3, i);
        write_npy<std::uint16_t>(in("levels") / place, "<u2", i % 3, i);
        write_npy<float>(in("floats") / place, "<f4", i % 3, i);
      }
  }
  Arguments levels(const std::string& command, const Arguments& more = {}) {
    return Arguments{command,
                     "mnist-lenet",
                     "data.reader=folder",
                     "decode.depth=16",
                     "data.path=" + in("levels").string(),
                     "loader.batch=6",
                     "model.classes=3",
                     "augment.random_affine.enabled=false",
                     "augment+=random_crop{size=10,pad_if_needed=true}"} +
           more;
  }
  std::string hash(const Arguments& more, const RunOptions& options = {}) {
    const Result result = run(levels("bench", Arguments{"--hash", "--json"} + more), options);
    EXPECT_TRUE(succeeded(result));
    const Json json = parse_json(result.out);
    return json.is_object() ? json["batch_hash"].get<std::string>() : "";
  }
};

TEST_F(Depth, TheHashIsTheSameHoweverTheyAreRead) {
  const std::string first = hash({"loader.workers=0"});
  ASSERT_EQ(first.size(), 16u);
  for (const char* key : {"loader.workers=3", "loader.io_threads=2", "data.cache=ram"})
    EXPECT_EQ(hash({key}), first) << key;
  for (const char* level : {"scalar", "avx2", "avx512"}) {
    RunOptions options;
    options.env["MILLRACE_SIMD"] = level;
    const Result result = run(levels("bench", {"--hash", "--json"}), options);
    if (result.exit_code == 2) continue;  // not supported by this processor
    EXPECT_EQ(parse_json(result.out)["batch_hash"], first) << level;
  }
  const std::string packed = in("packed").string();
  EXPECT_TRUE(refused(run({"data", "pack", in("levels"), packed}), 3, {"holds no image"}));
  ASSERT_TRUE(succeeded(run({"data", "pack", in("levels"), packed, "--arrays"})));
  EXPECT_EQ(hash({"data.reader=tar", "data.path=" + packed}), first);
}

TEST_F(Depth, VerifyFindsADamagedArray) {
  EXPECT_TRUE(succeeded(run({"data", "verify", in("levels"), "--arrays"})));
  EXPECT_TRUE(succeeded(run({"data", "verify", in("floats"), "--arrays"})));
  const std::filesystem::path file = in("floats") / "train/1/4.npy";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  const Result found = run({"data", "verify", in("floats"), "--arrays"});
  EXPECT_EQ(found.exit_code, 3);
  EXPECT_NE(found.out.find("4.npy: numpy: cut short"), std::string::npos) << found.out;
}

TEST_F(Depth, AModelTrainsOnFourChannels) {
  const std::string sheet = in("sheet.png").string();
  ASSERT_TRUE(succeeded(run(levels("inspect", {"--out", sheet}))));
  EXPECT_GT(std::filesystem::file_size(sheet), 500u);
  for (const char* path : {"levels", "floats"}) {
    const Result trained = run(levels(
        "train",
        {"data.path=" + in(path).string(), "decode.depth=float", "model.name=resnet18",
         "model.variant=cifar", "output.mean=[0.1,0.2,0.3,0.4]", "train.epochs=1",
         "eval.augment+=random_crop{size=10}", "--run", in(path + std::string("-run")).string()}));
    EXPECT_TRUE(succeeded(trained)) << path;
  }
}

TEST_F(Depth, WhatDoesNotFitIsRefusedAtTheStart) {
  EXPECT_TRUE(refused(run(levels("bench", {"augment+=brightness"})), 2,
                      {"brightness works on 8 bits, and decode.depth=16", "leave it out"}));
  EXPECT_TRUE(refused(run(levels("bench", {"output.normalize=device"})), 2,
                      {"output.normalize=device with decode.depth=16"}));
  EXPECT_TRUE(refused(run(levels("bench", {"decode.depth=8"})), 3, {"holds no image"}));
  EXPECT_TRUE(refused(run(levels("bench", {"data.path=" + in("floats").string()})), 3,
                      {"its pixels are floats", "decode.depth=float"}));
  EXPECT_TRUE(refused(run(levels("bench", {"decode.depth=12"})), 2, {"8, 16, float"}));
}

}  // namespace
}  // namespace millrace::program_test
