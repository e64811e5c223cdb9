// Text from outside (names of files and classes, messages of plugins): checks its encoding and
// makes it safe to print on a terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/private_api.h"

namespace millrace::base {

// Validates UTF-8. A recipe must hold UTF-8, or the TOML written from it could not be read.

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

// Makes text from outside (names of files and classes, messages of plugins) safe to print on a
// terminal.

/// Returns `text` on one line without characters that a terminal acts on. Line ends, tabs and
/// carriage returns become \n, \t and \r. Other control characters, and the marks that change the
/// writing direction, become \u001b and the like; bytes that are not UTF-8 become \x9b and the
/// like. Inside JSON these are its own escapes, so that a document keeps its meaning.
MILLRACE_PRIVATE_API std::string printable(std::string_view text);
/// Returns the same as printable(), but keeps line ends and tabs.
MILLRACE_PRIVATE_API std::string printable_lines(std::string_view text);

/// Returns `text` without the middle of every word of more than 512 bytes, and without its own
/// middle if it is still longer than 4096 bytes. A value of megabytes in a message stays readable.
/// Keeps UTF-8 valid.
MILLRACE_PRIVATE_API std::string abridged(std::string_view text);

}  // namespace millrace::base
