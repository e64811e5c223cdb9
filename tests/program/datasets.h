// Small data sets, valid and damaged.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace millrace::program_test {

struct IdxSet {
  int train = 200;
  int test = 60;
  int side = 28;
  int classes = 10;
  int seed = 1;
};

/// Writes a set in which each class is a pattern of bright blocks under noise, so that a LeNet
/// learns it in some dozen steps. Image i has the label i mod classes.
void write_idx(const std::filesystem::path& folder, const IdxSet& set = {});

/// Names of the four files in a set's folder.
inline constexpr const char* kTrainImages = "train-images-idx3-ubyte";
inline constexpr const char* kTrainLabels = "train-labels-idx1-ubyte";
inline constexpr const char* kTestImages = "t10k-images-idx3-ubyte";
inline constexpr const char* kTestLabels = "t10k-labels-idx1-ubyte";
inline constexpr std::size_t kImageHeader = 16;
inline constexpr std::size_t kLabelHeader = 8;

/// Keeps the first part `part` (0..1) of a file's bytes.
void cut(const std::filesystem::path& file, double part);
void patch(const std::filesystem::path& file, std::size_t at, std::uint8_t byte);

/// Writes FOLDER/train/{ape,bee,cat}/NN.jpg: `each` images per class, `side` pixels square.
void write_photos(const std::filesystem::path& folder, int each, int side = 48);

}  // namespace millrace::program_test
