// Escapes text for gnuplot.
#include "study/report/plot_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "study/report/report_escape.h"

namespace millrace::study {
namespace {

/// Returns whether a byte of UTF-8 continues the character of the one before.
bool goes_on(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

std::string drawable(std::string_view text) {
  std::string out = clean_utf8(text);
  for (char& byte : out)
    if (byte == '\n' || byte == '\t') byte = ' ';
  for (const std::string_view unknown : {"\uFFFE", "\uFFFF"})
    for (std::size_t at = 0; (at = out.find(unknown, at)) != std::string::npos;)
      out.replace(at, unknown.size(), "\uFFFD");
  return out;
}

std::size_t letters(std::string_view text) {
  return text.size() - static_cast<std::size_t>(std::count_if(text.begin(), text.end(), goes_on));
}

std::string shortened(std::string_view whole, std::size_t most) {
  std::string text = drawable(whole);
  if (letters(text) <= most) return text;
  std::size_t end = 0;
  for (std::size_t count = 0; count < most; ++end) count += !goes_on(text[end]);
  return text.substr(0, end - 1) + "…";
}

std::string gnuplot_text(std::string_view text) {
  // Single quotes would need less escaping, but gnuplot 5.4 misreads a text that begins with one.
  std::string out = "\"";
  for (const char byte : drawable(text)) {
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
  const std::string text = drawable(whole);
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

}  // namespace millrace::study
