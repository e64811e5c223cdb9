// Helpers that the tests of readers and data tools share: a temporary folder, hand-made files, and
// a check of every part of an error.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "millrace/error.h"
#include "millrace/reader.h"

namespace millrace::test {

namespace fs = std::filesystem;
using Bytes = std::vector<std::uint8_t>;

class TempFolder {
 public:
  explicit TempFolder(const fs::path& below = fs::temp_directory_path()) {
    std::string pattern = (below / "millrace-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path(const std::string& name = {}) const {
    return name.empty() ? path_ : path_ + "/" + name;
  }
  /// Writes a file and the folders above it. Returns its path.
  std::string write(const std::string& name, const Bytes& bytes) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    fs::remove(path(name));  // some file systems flush a file that is overwritten, which is slow
    std::ofstream(path(name), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    return path(name);
  }

 private:
  std::string path_;
};

inline Bytes read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline Bytes cut(Bytes bytes, std::size_t size) {
  bytes.resize(size);
  return bytes;
}

inline void append_big_endian(Bytes& bytes, std::uint32_t number) {
  for (const int shift : {24, 16, 8, 0})
    bytes.push_back(static_cast<std::uint8_t>(number >> shift));
}

/// Returns IDX images whose pixel i (over all images) is i * 7 mod 256.
inline Bytes idx_images(std::uint32_t count, std::uint32_t height = 4, std::uint32_t width = 3) {
  Bytes bytes;
  for (const std::uint32_t number : {0x0803u, count, height, width})
    append_big_endian(bytes, number);
  for (std::uint32_t i = 0; i < count * height * width; ++i)
    bytes.push_back(static_cast<std::uint8_t>(i * 7));
  return bytes;
}

inline Bytes idx_labels(const Bytes& labels) {
  Bytes bytes;
  for (const std::uint32_t number : {0x0801u, static_cast<std::uint32_t>(labels.size())})
    append_big_endian(bytes, number);
  bytes.insert(bytes.end(), labels.begin(), labels.end());
  return bytes;
}

/// Returns a black BMP with 24 bits per pixel.
inline Bytes bmp(int width, int height) {
  const auto pixels = static_cast<std::size_t>((width * 3 + 3) / 4 * 4 * height);
  Bytes bytes{'B', 'M', 0, 0, 0, 0, 0, 0, 0, 0, 54, 0, 0, 0, 40, 0, 0, 0};
  for (const int side : {width, height})
    for (const int shift : {0, 8, 16, 24})
      bytes.push_back(static_cast<std::uint8_t>(side >> shift));
  bytes.insert(bytes.end(), {1, 0, 24});
  bytes.resize(54 + pixels);
  return bytes;
}

inline Bytes gzip(const Bytes& plain) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  Bytes packed(deflateBound(&stream, plain.size()) + 64);
  stream.next_in = const_cast<Bytef*>(plain.data());
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

/// Runs `call`, which must throw an Error of kind `exit` with a one-line text that holds every part
/// and, for bad data, a hint.
template <class Call>
void expect_error(Exit exit, std::initializer_list<std::string> parts, const Call& call) {
  try {
    call();
    ADD_FAILURE() << "no error, expected one with: " << *parts.begin();
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_EQ(error.exit(), exit) << what;
    EXPECT_FALSE(error.hint().empty()) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    for (const std::string& part : parts)
      EXPECT_NE(what.find(part), std::string::npos) << "no '" << part << "' in: " << what;
  }
}

template <class Call>
void expect_data_error(std::initializer_list<std::string> parts, const Call& call) {
  expect_error(Exit::data, parts, call);
}

/// Opens the data set in `folder`.
inline std::unique_ptr<Reader> open(const TempFolder& folder, const std::string& reader,
                                    const std::string& split = "train", int classes = 0) {
  return open_reader({reader, folder.path(), split, classes});
}

/// Returns a copy of one sample's bytes.
inline Bytes bytes_of(const Reader& reader, std::uint64_t index) {
  Buffer scratch;
  const Sample sample = reader.read(index, scratch);
  return {sample.bytes.begin(), sample.bytes.end()};
}

inline std::int64_t label_of(const Reader& reader, std::uint64_t index) {
  Buffer scratch;
  return reader.read(index, scratch).label;
}

inline std::vector<std::int64_t> labels_of(const Reader& reader) {
  std::vector<std::int64_t> labels;
  for (std::uint64_t i = 0; i < reader.info().count; ++i) labels.push_back(label_of(reader, i));
  return labels;
}

/// Expects the same classes, bytes and labels.
inline void expect_same_samples(const Reader& one, const Reader& two) {
  ASSERT_EQ(one.info().count, two.info().count);
  EXPECT_EQ(one.info().classes, two.info().classes);
  for (std::uint64_t i = 0; i < one.info().count; ++i)
    EXPECT_EQ(bytes_of(one, i), bytes_of(two, i)) << i;
  EXPECT_EQ(labels_of(one), labels_of(two));
}

}  // namespace millrace::test
