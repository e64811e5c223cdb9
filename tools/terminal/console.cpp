// Formats errors, progress and tables.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "base/text.h"
#include "tools/terminal/program.h"
#include "tools/terminal/terminal.h"

namespace millrace::tools {
namespace {

constexpr std::string_view kName = "millrace: ";

/// Counts characters on the screen, not bytes.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

Verbosity& verbosity() {
  static Verbosity one;
  return one;
}

void print_error(const Error& error) {
  std::string text = fmt::format("{}{}\n", kName, base::printable(base::abridged(error.what())));
  if (!error.hint().empty())
    text += fmt::format("  hint: {}\n", base::printable(base::abridged(in_own_name(error.hint()))));
  const int to = error_descriptor();
  if (to != STDERR_FILENO && write(to, text.data(), text.size()) > 0) return;
  print_error_text(text);
}

void print_error_text(const std::string& text, const std::string& before) {
  const bool colour = isatty(STDERR_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (colour && line.starts_with(kName)) line = "\033[31mmillrace:\033[0m" + line.substr(9);
    write_error(before + line + "\n");
  }
}

int error_descriptor() {
  static const int descriptor = [] {
    const char* const value = std::getenv(kErrorVariable);
    const int given = value == nullptr ? -1 : std::atoi(value);
    const bool open = given > STDERR_FILENO && fcntl(given, F_SETFD, FD_CLOEXEC) == 0;
    return open ? given : STDERR_FILENO;
  }();
  return descriptor;
}

void tell_watched() {
  if (const int to = error_descriptor(); to != STDERR_FILENO)
    static_cast<void>(!write(to, &kWatched, 1));
}

std::string shell_word(const std::string& text) { return base::shell_word(text); }

void say(const std::string& text) {
  if (!verbosity().quiet) write_error(base::printable_lines(base::abridged(text)) + "\n");
}

ProgressLine::ProgressLine() : on_(isatty(STDERR_FILENO) != 0 && !verbosity().quiet) {}
ProgressLine::~ProgressLine() { clear(); }

bool ProgressLine::due() {
  if (!on_) return false;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < std::chrono::milliseconds(100)) return false;
  last_ = now;
  return true;
}

void ProgressLine::show(double done, double total, const std::string& text) {
  winsize size{};
  ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
  const std::size_t columns = size.ws_col > 20 ? size.ws_col : 80;
  std::string line = "[";
  constexpr int kCells = 24;
  for (int cell = 0; cell < kCells; ++cell) line += cell * total < done * kCells ? '=' : ' ';
  line += "] " + base::printable(text);
  if (line.size() > columns - 1) line.resize(columns - 1);
  write_error(fmt::format("\r{}\033[K", line));
  shown_ = true;
}

void ProgressLine::clear() {
  if (!shown_) return;
  write_error("\r\033[K");
  shown_ = false;
}

std::string to_table(std::vector<std::vector<std::string>> rows) {
  std::vector<std::size_t> widths;
  for (auto& row : rows)
    for (std::string& cell : row) cell = base::printable(cell);
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i == 0) {
        line += fmt::format("{:<{}}", row[i], widths[i]);
      } else {
        line += fmt::format("  {:>{}}", row[i], widths[i]);
      }
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string percent(double share) {
  const std::string text = fmt::format("{:.4f}%", 100 * share);
  return text == "-0.0000%" ? text.substr(1) : text;
}

std::size_t terminal_columns() {
  constexpr std::size_t kNarrowest = 20;
  const char* const given = std::getenv("COLUMNS");
  const long columns = given == nullptr ? 0 : std::strtol(given, nullptr, 10);
  if (columns >= static_cast<long>(kNarrowest)) return static_cast<std::size_t>(columns);
  winsize size{};
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO})
    if (ioctl(stream, TIOCGWINSZ, &size) == 0 && size.ws_col >= kNarrowest) return size.ws_col;
  return 80;
}

std::string wrapped(std::string_view text, std::size_t columns, std::string_view first,
                    std::string_view rest) {
  std::istringstream words{std::string(text)};
  std::string lines, line(first);
  bool empty = true;  // the line holds no word yet
  for (std::string word; words >> word; empty = false) {
    if (!empty && width_of(line) + 1 + width_of(word) > columns) {
      lines += line + "\n";
      line = rest;
      empty = true;
    }
    line += empty ? word : " " + word;
  }
  return lines + line;
}

std::string with_commas(double value) {
  const std::string digits = fmt::format("{:.0f}", value);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const bool group_ends = i > 0 && digits[i - 1] != '-' && (digits.size() - i) % 3 == 0;
    if (group_ends) text += ',';
    text += digits[i];
  }
  return text;
}

}  // namespace millrace::tools
