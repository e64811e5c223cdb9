// Scans TOML text for its nesting depth.
#include "pipeline/recipe/toml_depth.h"

#include <algorithm>

namespace millrace::pipeline {
namespace {

/// Returns the end of the string that begins at `at`, in any of TOML's four kinds of quotes.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const bool lines = text.substr(at, 3) == std::string_view(quote == '"' ? "\"\"\"" : "'''");
  for (std::size_t i = at + (lines ? 3 : 1); i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (!lines && (text[i] == quote || text[i] == '\n')) {
      return text[i] == quote ? i + 1 : i;
    } else if (lines && text[i] == quote) {
      std::size_t count = 1;
      while (i + count < text.size() && text[i + count] == quote) ++count;
      // Up to two quotes may precede the end.
      if (count >= 3) return i + std::min<std::size_t>(count, 5);
      i += count - 1;
    }
  }
  return text.size();
}

}  // namespace

std::size_t line_nested_too_deep(std::string_view toml) {
  std::size_t line = 1;
  std::size_t dots = 0;  // since the last key or value ended; a number has one
  std::size_t brackets = 0;
  for (std::size_t i = 0; i < toml.size(); ++i) {
    switch (toml[i]) {
      case '#':
        i = std::min(toml.find('\n', i), toml.size()) - 1;
        break;
      case '"':
      case '\'': {
        const std::size_t end = end_of_string(toml, i);
        line += static_cast<std::size_t>(std::count(&toml[i], toml.data() + end, '\n'));
        i = end - 1;
        break;
      }
      case '\n':
        ++line;
        dots = 0;
        break;
      case '.':
        if (++dots >= kDeepestToml) return line;
        break;
      case '[':
      case '{':
        dots = 0;
        if (++brackets > kDeepestToml) return line;
        break;
      case ']':
      case '}':
        brackets -= brackets > 0 ? 1 : 0;
        dots = 0;
        break;
      case ',':
      case '=':
        dots = 0;
        break;
      default:
        break;
    }
  }
  return 0;
}

}  // namespace millrace::pipeline
