// Validates UTF-8. A recipe must hold UTF-8, or the TOML written from it could not be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace millrace::base {

/// Returns whether the text is well-formed by the Unicode Standard, table 3-7: no overlong forms,
/// no surrogates, nothing above U+10FFFF.
constexpr bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto first = static_cast<std::uint8_t>(text[i++]);
    if (first < 0x80) continue;
    if (first < 0xc2 || first > 0xf4) return false;
    // Only the second byte's range depends on the first byte.
    std::uint8_t low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    std::uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    for (int more = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3; more > 0; --more, ++i) {
      if (i == text.size()) return false;
      const auto next = static_cast<std::uint8_t>(text[i]);
      if (next < low || next > high) return false;
      low = 0x80;
      high = 0xbf;
    }
  }
  return true;
}

}  // namespace millrace::base
