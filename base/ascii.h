// ASCII text.
#pragma once

#include <string>
#include <string_view>

namespace millrace::base {

/// Returns A to Z in lower case, any other byte as it is.
constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

/// Returns the text with A to Z in lower case; other bytes stay.
inline std::string lower(std::string_view text) {
  std::string low(text);
  for (char& c : low) c = lower(c);
  return low;
}

}  // namespace millrace::base
