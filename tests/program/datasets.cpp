// Writes small data sets for tests.
#include "tests/program/datasets.h"

#include <turbojpeg.h>

#include <array>
#include <random>
#include <stdexcept>
#include <vector>

#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

std::string big_endian(int value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

/// Returns which of 4x4 blocks of the image are bright in this class.
std::array<bool, 16> pattern_of(int label) {
  std::mt19937 draw(static_cast<unsigned>(100 + label));
  std::array<bool, 16> bright{};
  for (bool& block : bright) block = draw() % 2 == 0;
  return bright;
}

void write_split(const fs::path& folder, const std::string& prefix, int count, const IdxSet& set) {
  std::string images =
      big_endian(0x803) + big_endian(count) + big_endian(set.side) + big_endian(set.side);
  std::string labels = big_endian(0x801) + big_endian(count);
  const auto block = [&](int at) { return static_cast<std::size_t>(at * 4 / set.side); };
  std::mt19937 noise(static_cast<unsigned>(set.seed * 1000 + count));
  for (int i = 0; i < count; ++i) {
    const int label = i % set.classes;
    labels += static_cast<char>(label);
    const auto bright = pattern_of(label);
    for (int y = 0; y < set.side; ++y)
      for (int x = 0; x < set.side; ++x)
        images += static_cast<char>((bright[block(y) * 4 + block(x)] ? 160u : 0u) + noise() % 96);
  }
  write_file(folder / (prefix + "-images-idx3-ubyte"), images);
  write_file(folder / (prefix + "-labels-idx1-ubyte"), labels);
}

std::string jpeg(int side, unsigned seed) {
  std::mt19937 draw(seed);
  std::vector<unsigned char> pixels(static_cast<std::size_t>(side * side) * 3);
  for (std::size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<unsigned char>(64 + draw() % 128);
  tjhandle codec = tjInitCompress();
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  const int status =
      tjCompress2(codec, pixels.data(), side, 0, side, TJPF_RGB, &bytes, &size, TJSAMP_420, 90, 0);
  std::string file(reinterpret_cast<const char*>(bytes), size);
  tjFree(bytes);
  tjDestroy(codec);
  if (status != 0) throw std::runtime_error("libjpeg-turbo wrote nothing");
  return file;
}

}  // namespace

void write_idx(const fs::path& folder, const IdxSet& set) {
  write_split(folder, "train", set.train, set);
  write_split(folder, "t10k", set.test, set);
}

void cut(const fs::path& file, double part) {
  fs::resize_file(file,
                  static_cast<std::uintmax_t>(static_cast<double>(fs::file_size(file)) * part));
}

void patch(const fs::path& file, std::size_t at, std::uint8_t byte) {
  std::string bytes = read_file(file);
  bytes.at(at) = static_cast<char>(byte);
  write_file(file, bytes);
}

void write_photos(const fs::path& folder, int each, int side) {
  unsigned seed = 0;
  for (const char* name : {"ape", "bee", "cat"})
    for (int i = 0; i < each; ++i)
      write_file(folder / "train" / name / (std::to_string(10 + i) + ".jpg"), jpeg(side, ++seed));
}

}  // namespace millrace::program_test
