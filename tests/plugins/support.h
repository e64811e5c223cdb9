// Small files that the plugins' tests read.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace millrace::plugin_test {

using Bytes = std::vector<std::uint8_t>;

inline std::string test_plugin(const std::string& name) {
  return std::string(MILLRACE_TEST_PLUGINS "/") + name + ".so";
}
inline std::string example_plugin(const std::string& name) {
  return std::string(MILLRACE_EXAMPLE_PLUGINS "/") + name + ".so";
}

/// A temporary folder of one test.
class Folder {
 public:
  Folder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "millrace-plugins-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path() const { return path_.string(); }
  std::string write(const std::string& name, const Bytes& bytes) const {
    std::ofstream out(path_ / name, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    if (!out.flush()) throw std::runtime_error("cannot write " + name);
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

/// RGB pixels in QOI, each by the operation that `choose` names for it.
inline Bytes qoi_header(std::uint32_t width, std::uint32_t height) {
  Bytes file{'q', 'o', 'i', 'f'};
  for (const std::uint32_t side : {width, height})
    for (int shift = 24; shift >= 0; shift -= 8)
      file.push_back(static_cast<std::uint8_t>(side >> shift));
  file.push_back(3);
  file.push_back(0);
  return file;
}

/// 4x3 pixels made by every operation of the format; qoi_pixels() returns them decoded.
inline Bytes qoi_file() {
  Bytes file = qoi_header(4, 3);
  const Bytes data{0xFE,
                   10,
                   20,
                   30,                      // RGB
                   0xC1,                    // run of 2
                   0x40 | 3 << 4 | 1 << 2,  // diff: +1, -1, -2
                   0x80 | 42,
                   0x5A,  // luma: green +10, red 10 - 3, blue 10 + 2
                   0xFF,
                   1,
                   2,
                   3,
                   77,                                          // RGBA
                   (10 * 3 + 20 * 5 + 30 * 7 + 255 * 11) % 64,  // index: the first pixel again
                   0xC4,                                        // run of 5
                   0,
                   0,
                   0,
                   0,
                   0,
                   0,
                   0,
                   1};  // end
  file.insert(file.end(), data.begin(), data.end());
  return file;
}
inline Bytes qoi_pixels() {
  Bytes pixels;
  const auto add = [&pixels](int r, int g, int b) {
    for (const int level : {r, g, b}) pixels.push_back(static_cast<std::uint8_t>(level));
  };
  for (int i = 0; i < 3; ++i) add(10, 20, 30);
  add(11, 19, 28);
  add(18, 29, 40);
  add(1, 2, 3);
  for (int i = 0; i < 6; ++i) add(10, 20, 30);
  return pixels;
}

/// A file in NumPy's format 1.0.
inline Bytes npy_file(const std::string& type, const std::string& shape, const Bytes& elements) {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  while ((header.size() + 11) % 64 != 0) header += ' ';
  header += '\n';
  Bytes file{0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
  file.push_back(static_cast<std::uint8_t>(header.size() & 255));
  file.push_back(static_cast<std::uint8_t>(header.size() >> 8));
  file.insert(file.end(), header.begin(), header.end());
  file.insert(file.end(), elements.begin(), elements.end());
  return file;
}

}  // namespace millrace::plugin_test
