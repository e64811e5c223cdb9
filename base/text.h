// Text in messages: printable, quoted for a shell, and the nearest valid name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

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

// Words of a shell's command line, for commands that messages propose.

/// Returns `text` as one word of a shell's command line, quoted if it needs to be.
MILLRACE_PRIVATE_API std::string shell_word(std::string_view text);

// Suggestions for "did you mean ...?": the nearest valid name.

/// Returns the number of insertions, deletions, substitutions and swaps of neighbours between two
/// words.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> two(b.size() + 1), one(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) one[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({one[j] + 1, row[j - 1] + 1, one[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], two[j - 2] + 1);
    }
    two = one;
    one = row;
  }
  return one[b.size()];
}

/// Returns a name in lower case without - and _, so that AdamW, adam_w and adamw are alike.
MILLRACE_PRIVATE_API std::string folded(std::string_view name);

/// Returns what millrace calls something that PyTorch, torchvision or albumentations call `name`
/// (RandomHorizontalFlip: hflip), or an empty text.
MILLRACE_PRIVATE_API std::string_view our_name(std::string_view name);

/// Returns the candidate that means the same as `name`, else the one spelt most like it, and the
/// first of several.
template <class Names>
std::string nearest(std::string_view name, const Names& candidates) {
  constexpr std::size_t kLongestName = 256;  // anything longer is not a typing error
  name = name.substr(0, kLongestName);
  const std::string wanted = folded(name);
  const std::string_view ours = our_name(name);
  for (const auto& candidate : candidates)
    if (folded(candidate) == wanted) return std::string(candidate);
  for (const auto& candidate : candidates)
    if (!ours.empty() && ours == candidate) return std::string(candidate);
  std::string best;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const auto& candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace millrace::base
