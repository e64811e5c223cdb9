// Reads a run's JSON files with bounds on their nesting, and its steps.csv.

#include "study/records/run_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/record_file.h"
#include "millrace/error.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Drops values nested deeper than any of our records, because code that walks a document recurses
/// per level.
bool is_near(int depth, Json::parse_event_t, Json&) {
  constexpr int kDeepest = 64;
  return depth <= kDeepest;
}

const Json* find(const Json& json, std::initializer_list<const char*> keys) {
  const Json* at = &json;
  for (const char* key : keys) {
    if (!at->is_object()) return nullptr;
    const auto found = at->find(key);
    if (found == at->end()) return nullptr;
    at = &*found;
  }
  return at;
}

}  // namespace

Json parse_json(std::string_view text) {
  return Json::parse(text, is_near, /*allow_exceptions=*/false);
}

Json read_json(const fs::path& file) {
  std::ifstream in = base::open_record(file);
  if (!in) return nullptr;
  Json json = parse_json(base::read_record(in, file));
  if (!json.is_object())
    throw DataError(fmt::format("{} is damaged: it is not a JSON object", file.string()),
                    "move it away to get a report without it");
  return json;
}

std::vector<Json> read_json_lines(const fs::path& file, bool& cut) {
  std::vector<Json> lines;
  std::ifstream in = base::open_record(file);
  for (std::string line; base::read_line(in, line, file);) {
    if (in.eof()) {  // no final newline: the writer was killed, or is still writing
      cut = true;
      break;
    }
    lines.push_back(parse_json(line));
    if (!lines.back().is_object())
      throw DataError(
          fmt::format("{}:{} is damaged: not a JSON object", file.string(), lines.size()),
          "remove that line to get a report without it");
  }
  return lines;
}

double number_at(const Json& json, std::initializer_list<const char*> keys) {
  const Json* at = find(json, keys);
  return at != nullptr && at->is_number() ? at->get<double>() : NAN;
}

std::string text_at(const Json& json, std::initializer_list<const char*> keys) {
  const Json* at = find(json, keys);
  if (at == nullptr || at->is_null() || at->is_structured()) return "";
  return at->is_string() ? at->get<std::string>() : at->dump();
}

// Reads steps.csv and merges neighbouring steps.

namespace {

/// Destination of a table's column: a span's number, or one of these.
enum Column : int { kStep = 100, kImages, kLoss, kUnused };

int column_of(std::string_view name) {
  if (name == "step") return kStep;
  if (name == "images") return kImages;
  if (name == "loss") return kLoss;
  if (name == "step_s") name = "step";
  for (std::size_t i = 0; i < kStepSpanCount; ++i)
    if (step_span_name(i) == name) return static_cast<int>(i);
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
    } else if (columns[i] < static_cast<int>(kStepSpanCount)) {
      step.ns[static_cast<std::size_t>(columns[i])] = std::llround(value * 1e9);
    }
  }
  step.steps = 1;
  return true;
}

}  // namespace

void read_numbers(const fs::path& file, const std::vector<std::string_view>& columns,
                  const std::function<void(const std::vector<double>&)>& visit) {
  std::ifstream in = base::open_record(file);
  std::vector<std::size_t> places;
  std::size_t width = 0;
  std::vector<double> row(columns.size());
  std::uint64_t number = 0;
  for (std::string line; in.is_open() && base::read_line(in, line, file) && !in.eof();) {
    ++number;
    const auto cells = cells_of(line);
    const auto damaged = [&](const char* what) {
      return DataError(fmt::format("{}:{} is damaged: {}", file.string(), number, what),
                       "remove that line to get a report without it");
    };
    if (number == 1) {
      width = cells.size();
      for (const std::string_view name : columns) {
        const auto found = std::find(cells.begin(), cells.end(), name);
        if (found == cells.end()) throw damaged("not the header of this table");
        places.push_back(static_cast<std::size_t>(found - cells.begin()));
      }
      continue;
    }
    if (cells.size() != width) throw damaged("not a row of this table");
    for (std::size_t i = 0; i < places.size(); ++i)
      if (!read_number(cells[places[i]], row[i]) || !std::isfinite(row[i]) ||
          std::abs(row[i]) > 1e18)
        throw damaged("not a row of this table");
    visit(row);
  }
}

void StepSum::add(const StepSum& next) {
  if (steps == 0) first = next.first;
  last = next.last;
  steps += next.steps;
  images += next.images;
  loss_sum += next.loss_sum;
  losses += next.losses;
  for (std::size_t i = 0; i < kStepSpanCount; ++i) ns[i] += next.ns[i];
}

std::int64_t StepSum::load_ns() const {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < kStepSpanCount; ++i)
    if (is_load_span(i)) sum += ns[i];
  return sum;
}

std::int64_t StepSum::update_ns() const {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < kStepSpanCount; ++i)
    if (is_update_span(i)) sum += ns[i];
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

void StepReader::damaged(const char* what) const {
  throw DataError(fmt::format("{}:{} is damaged: {}", file_.string(), line_, what),
                  "remove that line to get a report without it");
}

bool StepReader::next_line(std::string& line, StepFile& state) {
  if (!base::read_line(in_, line, file_) || in_.eof()) {
    state.cut = !line.empty();
    at_end_ = true;
    in_.clear();
    in_.seekg(offset_);  // the next call reads an incomplete line again
    return false;
  }
  offset_ += static_cast<std::streamoff>(line.size()) + 1;
  ++line_;
  return true;
}

bool StepReader::is_cut() {
  if (!in_.is_open() || last_end_ == 0) return false;
  // The rows that a resumed run writes in their place took other times.
  std::string now(last_line_.size() + 1, '\0');
  in_.clear();
  in_.seekg(last_end_ - static_cast<std::streamoff>(now.size()));
  in_.read(now.data(), static_cast<std::streamsize>(now.size()));
  const bool is_there = in_.gcount() == static_cast<std::streamsize>(now.size()) &&
                        now.back() == '\n' && now.compare(0, last_line_.size(), last_line_) == 0;
  in_.clear();
  in_.seekg(offset_);
  return !is_there;
}

bool StepReader::start_over_if_cut() {
  if (!is_cut()) return false;
  *this = StepReader(file_);
  return true;
}

void StepReader::read_header(const std::string& line) {
  bool spans = false, numbered = false;
  for (const std::string_view cell : cells_of(line)) {
    columns_.push_back(column_of(cell));
    spans |= columns_.back() < static_cast<int>(kStepSpanCount);
    numbered |= columns_.back() == kStep;
  }
  if (!spans || !numbered) damaged("not the header of a table of steps");
}

StepFile StepReader::read(const std::function<void(const StepSum&)>& visit, std::uint64_t most) {
  StepFile state;
  at_end_ = false;
  if (!in_.is_open()) in_ = base::open_record(file_);
  state.there = in_.is_open();
  if (!state.there) {
    in_.clear();
    at_end_ = true;
    return state;
  }
  std::string line;
  if (columns_.empty()) {
    if (!next_line(line, state)) return state;  // the table is still empty
    read_header(line);
    last_line_ = line;
    last_end_ = offset_;
  }
  StepSum step;
  for (std::uint64_t rows = 0; rows < most && next_line(line, state); ++rows) {
    if (!read_row(line, columns_, step)) {
      if (is_cut()) return state;
      damaged("not a row of this table");
    }
    last_line_.swap(line);
    last_end_ = offset_;
    visit(step);
  }
  return state;
}

StepFile for_each_step(const fs::path& file, const std::function<void(const StepSum&)>& visit) {
  return StepReader(file).read(visit, std::numeric_limits<std::uint64_t>::max());
}

void StepTable::add(const StepSum& one) {
  reduced.add(one);
  all.add(one);
  load.add(in_seconds(one.load_ns()));
  update.add(in_seconds(one.update_ns()));
  other.add(in_seconds(one.other_ns()));
  step.add(in_seconds(one.load_ns() + one.update_ns()));
}

StepTable read_steps(const fs::path& file) {
  StepTable table;
  const StepFile state = for_each_step(file, [&table](const StepSum& step) { table.add(step); });
  table.there = state.there;
  table.cut = state.cut;
  return table;
}

}  // namespace millrace::study
