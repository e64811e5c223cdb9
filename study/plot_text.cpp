#include "study/plot_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "pipeline/utf8.h"

namespace millrace {
namespace {

/// The code point that begins at `at`, as it stands; empty where there is none.
std::string_view code_point(std::string_view text, std::size_t at) {
  for (std::size_t size = 1; size <= 4 && at + size <= text.size(); ++size)
    if (is_utf8(text.substr(at, size))) return text.substr(at, size);
  return {};
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view point = code_point(text, at);
    if (point.empty() || point == "\uFFFE" || point == "\uFFFF")
      out += "\uFFFD";
    else if (point.size() == 1 && (static_cast<unsigned char>(point[0]) < 0x20 || point[0] == 0x7F))
      out += ' ';
    else
      out += point;
    at += std::max<std::size_t>(point.size(), 1);
  }
  return out;
}

std::size_t letters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  }));
}

std::string shortened(std::string_view whole, std::size_t most) {
  const std::string text = printable(whole);
  if (letters(text) <= most) return text;
  std::string out;
  for (std::size_t at = 0, count = 1; count < most; ++count) {
    const std::string_view point = code_point(text, at);
    out += point;
    at += point.size();
  }
  return out + "…";
}

std::string gnuplot_text(std::string_view text) {
  // Between single quotes, less would have to be replaced, but gnuplot 5.4 misreads a text that
  // begins with one.
  std::string out = "\"";
  for (const char byte : printable(text)) {
    if (std::string_view("\"\\`'@").find(byte) != std::string_view::npos)
      out += fmt::format("\\{:03o}", static_cast<unsigned char>(byte));
    else
      out += byte;
  }
  return out + "\"";
}

std::string gnuplot_tic(std::string_view text) {
  std::string doubled;
  for (const char byte : text) doubled.append(byte == '%' ? 2 : 1, byte);
  return gnuplot_text(doubled);
}

std::string gnuplot_lines(std::string_view whole, std::size_t most) {
  const std::string text = printable(whole);
  std::string out;
  std::string line;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!line.empty() && letters(line) + 1 + letters(word) > most) {
      out += gnuplot_text(line) + " . \"\\n\" . ";
      line.clear();
    }
    if (at > 0 && !line.empty()) line += ' ';
    line += word;
    at = end + 1;
  }
  return out + gnuplot_text(line);
}

}  // namespace millrace
