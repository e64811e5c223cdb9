// Builds tar archives for tests, sound or with one defect.
#pragma once

#include <cstdint>
#include <cstdio>
#include <numeric>
#include <string>
#include <string_view>

#include "tests/data/support.h"

namespace millrace::test {

inline Bytes bytes_from(std::string_view text) { return {text.begin(), text.end()}; }

class TarBuilder {
 public:
  /// Appends a header block alone, which announces `size`.
  TarBuilder& header(const std::string& name, std::uint64_t size, char type = '0',
                     std::string_view magic = std::string_view("ustar\0"
                                                               "00",
                                                               8),
                     const std::string& prefix = "") {
    Bytes block(512);
    const auto put = [&](std::size_t at, std::string_view text) {
      std::copy(text.begin(), text.end(), block.begin() + static_cast<std::ptrdiff_t>(at));
    };
    put(0, name.substr(0, 100));
    put(100, "0000644");
    char octal[24];
    std::snprintf(octal, sizeof octal, "%011llo", static_cast<unsigned long long>(size));
    put(124, octal);
    put(148, "        ");
    block[156] = static_cast<std::uint8_t>(type);
    put(257, magic);
    put(345, prefix);
    std::snprintf(octal, sizeof octal, "%06o", std::accumulate(block.begin(), block.end(), 0u));
    put(148, octal);
    block[154] = 0;
    last_ = bytes_.size();
    bytes_.insert(bytes_.end(), block.begin(), block.end());
    return *this;
  }
  TarBuilder& contents(const Bytes& contents) {
    bytes_.insert(bytes_.end(), contents.begin(), contents.end());
    bytes_.resize((bytes_.size() + 511) / 512 * 512);
    return *this;
  }
  TarBuilder& add(const std::string& name, const Bytes& bytes, char type = '0') {
    return header(name, bytes.size(), type).contents(bytes);
  }
  TarBuilder& add(const std::string& name, std::string_view text, char type = '0') {
    return add(name, bytes_from(text), type);
  }
  TarBuilder& pax(const std::string& key, const std::string& value) {
    const std::string rest = " " + key + "=" + value + "\n";
    std::size_t length = rest.size() + 1;
    while (std::to_string(length).size() + rest.size() != length) ++length;
    return add("PaxHeaders/x", std::to_string(length) + rest, 'x');
  }
  /// Appends a name of over 100 bytes the GNU way.
  TarBuilder& long_name(const std::string& name) {
    return add("././@LongLink", name + std::string(1, '\0'), 'L');
  }
  Bytes end() const {
    Bytes bytes = bytes_;
    bytes.resize(bytes.size() + 1024);
    return bytes;
  }
  Bytes& raw() { return bytes_; }
  /// Returns the offset of the last header.
  std::size_t last() const { return last_; }

 private:
  Bytes bytes_;
  std::size_t last_ = 0;
};

}  // namespace millrace::test
