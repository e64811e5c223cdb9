// Reads steps.csv and merges neighbouring steps.
#include "study/records/step_table.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <fstream>
#include <string>
#include <string_view>

#include "millrace/error.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;

/// Destination of a table's column: a span's number, or one of these.
enum Column : int { kStep = 100, kImages, kLoss, kUnused };

int column_of(std::string_view name) {
  if (name == "step") return kStep;
  if (name == "images") return kImages;
  if (name == "loss") return kLoss;
  if (name == "step_s") name = "step";
  for (std::size_t i = 0; i < pipeline::kSpanCount; ++i)
    if (pipeline::kSpanNames[i] == name) return static_cast<int>(i);
  return kUnused;  // load_s and others: sums of the spans
}

std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> cells;
  for (std::size_t at = 0; at <= line.size();) {
    const std::size_t end = std::min(line.find(',', at), line.size());
    cells.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  return cells;
}

bool read_number(std::string_view text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool read_row(std::string_view line, const std::vector<int>& columns, StepSum& step) {
  const auto cells = cells_of(line);
  if (cells.size() != columns.size()) return false;
  step = {};
  for (std::size_t i = 0; i < cells.size(); ++i) {
    double value = 0;
    if (columns[i] == kLoss && cells[i].empty()) continue;
    if (!read_number(cells[i], value)) return false;
    if (columns[i] == kLoss) {
      if (!std::isfinite(value)) continue;
      step.loss_sum = value;
      step.losses = 1;
      continue;
    }
    if (!std::isfinite(value) || std::abs(value) > 1e15) return false;
    if (columns[i] == kStep) {
      step.first = step.last = static_cast<std::uint64_t>(std::max(0.0, value));
    } else if (columns[i] == kImages) {
      step.images = static_cast<std::int64_t>(value);
    } else if (columns[i] < static_cast<int>(pipeline::kSpanCount)) {
      step.ns[static_cast<std::size_t>(columns[i])] = std::llround(value * 1e9);
    }
  }
  step.steps = 1;
  return true;
}

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

void StepSum::add(const StepSum& next) {
  if (steps == 0) first = next.first;
  last = next.last;
  steps += next.steps;
  images += next.images;
  loss_sum += next.loss_sum;
  losses += next.losses;
  for (std::size_t i = 0; i < pipeline::kSpanCount; ++i) ns[i] += next.ns[i];
}

std::int64_t StepSum::load_ns() const {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < pipeline::kSpanCount; ++i)
    if (pipeline::is_load(static_cast<pipeline::Span>(i))) sum += ns[i];
  return sum;
}

std::int64_t StepSum::update_ns() const {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < pipeline::kSpanCount; ++i)
    if (pipeline::is_update(static_cast<pipeline::Span>(i))) sum += ns[i];
  return sum;
}

std::int64_t StepSum::other_ns() const {
  std::int64_t sum = 0;
  for (const std::int64_t one : ns) sum += one;
  return sum - load_ns() - update_ns();
}

void StepReduction::add(const StepSum& step) {
  if (!sums_.empty() && sums_.back().steps < width_) {
    sums_.back().add(step);
    return;
  }
  if (sums_.size() == 2 * points_) {
    for (std::size_t i = 0; i < points_; ++i) {
      StepSum pair = sums_[2 * i];
      pair.add(sums_[2 * i + 1]);
      sums_[i] = pair;
    }
    sums_.resize(points_);
    width_ *= 2;
  }
  sums_.push_back(step);
}

StepTable read_steps(const fs::path& file) {
  StepTable table;
  std::ifstream in(file, std::ios::binary);
  if (!in) return table;
  table.there = true;
  const auto damaged = [&](std::uint64_t line, const char* what) {
    throw DataError(fmt::format("{}:{} is damaged: {}", file.string(), line, what),
                    "remove that line to get a report without it");
  };
  std::string line;
  if (!std::getline(in, line) || in.eof()) {  // the table is still empty
    table.cut = !line.empty();
    return table;
  }
  std::vector<int> columns;
  bool spans = false, numbered = false;
  for (const std::string_view cell : cells_of(line)) {
    columns.push_back(column_of(cell));
    spans |= columns.back() < static_cast<int>(pipeline::kSpanCount);
    numbered |= columns.back() == kStep;
  }
  if (!spans || !numbered) damaged(1, "not the header of a table of steps");
  StepSum step;
  for (std::uint64_t number = 2; std::getline(in, line); ++number) {
    if (in.eof()) {
      table.cut = true;
      break;
    }
    if (!read_row(line, columns, step)) damaged(number, "not a row of this table");
    table.reduced.add(step);
    table.all.add(step);
    table.load.add(seconds(step.load_ns()));
    table.update.add(seconds(step.update_ns()));
    table.other.add(seconds(step.other_ns()));
  }
  return table;
}

}  // namespace millrace::study
