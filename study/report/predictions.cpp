// Parses a table of predictions, a row at a time.
#include "study/report/predictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>

#include "millrace/error.h"

namespace millrace::study {
namespace {

using Row = std::vector<std::string>;

/// Reads a row of RFC 4180, whose quoted fields may hold commas, quotes and line breaks. Returns
/// false at the end of the file.
bool read_row(std::istream& in, Row& row) {
  row.assign(1, "");
  bool quoted = false, any = false;
  for (int c = in.get(); c != std::istream::traits_type::eof(); c = in.get()) {
    any = true;
    if (c == '"') {
      if (quoted && in.peek() == '"')
        row.back() += static_cast<char>(in.get());
      else
        quoted = !quoted;
    } else if (c == ',' && !quoted) {
      row.emplace_back();
    } else if (c == '\n' && !quoted) {
      return true;
    } else {
      row.back() += static_cast<char>(c);
    }
  }
  return any;
}

/// Returns whether `text` is a probability, and its value. NaN is what a model whose loss diverged
/// gives: it counts as 0, a prediction without confidence.
bool read_probability(const std::string& text, double& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return false;
  if (std::isnan(value)) value = 0;
  return value >= 0 && value <= 1;
}

bool more_confident(const WrongImage& a, const WrongImage& b) {
  return a.probability != b.probability ? a.probability > b.probability : a.row < b.row;
}

}  // namespace

Predictions read_predictions(const std::filesystem::path& file, std::size_t most) {
  std::ifstream in(file, std::ios::binary);
  const auto damaged = [&](const std::string& where, const char* what) {
    throw DataError(fmt::format("{}{} is damaged: {}", file.string(), where, what),
                    "write it again: millrace eval RUN --predictions FILE.csv");
  };
  Row row;
  if (!read_row(in, row) || row != Row{"name", "label", "predicted", "probability"})
    damaged("", "not a table of predictions");
  Predictions all;
  while (read_row(in, row)) {
    WrongImage image;
    image.row = all.images++;
    if (row.size() != 4 || !read_probability(row[3], image.probability))
      damaged(fmt::format(", row {}", all.images), "not a name, two classes and a probability");
    if (row[1] == row[2]) continue;
    ++all.wrong;
    image.name = std::move(row[0]);
    image.label = std::move(row[1]);
    image.predicted = std::move(row[2]);
    // A heap whose first image is the least confident one.
    all.confident.push_back(std::move(image));
    std::push_heap(all.confident.begin(), all.confident.end(), more_confident);
    if (all.confident.size() <= most) continue;
    std::pop_heap(all.confident.begin(), all.confident.end(), more_confident);
    all.confident.pop_back();
  }
  std::sort_heap(all.confident.begin(), all.confident.end(), more_confident);
  return all;
}

}  // namespace millrace::study
