// Escaping for HTML, scripts, Markdown and CSV; base64.
#include "study/report/report_escape.h"

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "base/printable.h"

namespace millrace::study {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

/// Returns the length of the character at `at`; 0 if none begins there.
std::size_t character_at(std::string_view text, std::size_t at) {
  for (std::size_t length = 1; length <= 4 && at + length <= text.size(); ++length)
    if (base::is_utf8(text.substr(at, length))) return length;
  return 0;
}

bool is_control(char c) {
  const auto byte = static_cast<std::uint8_t>(c);
  return (byte < 0x20 && c != '\t' && c != '\n') || byte == 0x7f;
}

bool is_word(std::string_view text, std::size_t at) {
  return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0 ||
                              static_cast<std::uint8_t>(text[at]) >= 0x80);
}

}  // namespace

std::string clean_utf8(std::string_view text) {
  if (base::is_utf8(text) && std::none_of(text.begin(), text.end(), is_control))
    return std::string(text);
  std::string clean;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_at(text, at);
    clean += length == 0 || is_control(text[at]) ? kReplacement : text.substr(at, length);
    at += std::max<std::size_t>(1, length);
  }
  return clean;
}

std::string html_escaped(std::string_view text) {
  std::string safe;
  for (const char c : clean_utf8(text)) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string script_json(std::string_view json) {
  std::string safe;
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '<') {
      safe += "\\u003c";
    } else if (json[i] == '>') {
      safe += "\\u003e";
    } else if (json[i] == '&') {
      safe += "\\u0026";
    } else if (json.substr(i, 3) == "\xe2\x80\xa8") {
      safe += "\\u2028";
      i += 2;
    } else if (json.substr(i, 3) == "\xe2\x80\xa9") {
      safe += "\\u2029";
      i += 2;
    } else {
      safe += json[i];
    }
  }
  return safe;
}

std::string markdown_escaped(std::string_view raw) {
  const std::string text = clean_utf8(raw);
  std::string safe;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n' || c == '\t') {
      safe += ' ';
      continue;
    }
    // Underscores within a word are not Markdown's: load_s stays readable.
    const bool marks = std::string_view("\\`*|<>&~").find(c) != std::string_view::npos ||
                       (c == ']' && i + 1 < text.size() &&
                        std::string_view("([:").find(text[i + 1]) != std::string_view::npos) ||
                       (c == '_' && !(i > 0 && is_word(text, i - 1) && is_word(text, i + 1))) ||
                       (i == 0 && c == '#');
    if (marks) safe += '\\';
    safe += c;
  }
  return safe;
}

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string field = "\"";
  for (const char c : text) {
    if (c == '"') field += '"';
    field += c;
  }
  return field + '"';
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t j = 0; j < 3; ++j)
      three = three << 8 | (i + j < bytes.size() ? static_cast<std::uint8_t>(bytes[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j)
      text += i + j > bytes.size() ? '=' : kDigits[three >> (18 - 6 * j) & 63];
  }
  return text;
}

}  // namespace millrace::study
