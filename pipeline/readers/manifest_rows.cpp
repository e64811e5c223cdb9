// Parses manifests in CSV and JSONL.
#include "pipeline/readers/manifest_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/readers/data_set.h"

namespace millrace::pipeline {

void reject_row(const std::string& file, std::uint64_t line, const std::string& reason,
                const char* hint) {
  throw DataError(fmt::format("{}:{}: {}", file, line, reason), hint);
}

namespace {

std::string_view without_bom(std::string_view text) {
  constexpr std::string_view kBom = "\xef\xbb\xbf";
  return text.starts_with(kBom) ? text.substr(kBom.size()) : text;
}

void check_row(const std::string& file, const ManifestRow& row, const std::string& masks) {
  if (row.path.empty())
    reject_row(file, row.line, "the path is empty", "give the image's path, or remove the row");
  for (const std::string* path : {&row.path, &row.mask})
    if (path->find('\0') != std::string::npos)
      reject_row(file, row.line, "the path holds a zero byte", "repair or remove the row");
  if (row.label.empty() && row.target.empty() && masks.empty())
    reject_row(file, row.line, fmt::format("'{}' has no label", base::printable(row.path)),
               "give the class's number or name, or remove the row");
}

/// Most brackets within each other in a target, since JSON values are written recursively.
constexpr int kDeepestTarget = 64;

/// Returns how deeply the brackets of a JSON text lie within each other.
int depth_of(std::string_view text) {
  int depth = 0, deepest = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '[' || c == '{')) {
      deepest = std::max(deepest, ++depth);
    } else if (!quoted && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return deepest;
}

/// Returns the target that a field of a CSV file holds, in its shortest form.
std::string target_of(const std::string& file, std::uint64_t line, const std::string& field) {
  constexpr const char* kHint =
      "write a JSON value: 0.5, [1,2] in quotes, a text in doubled quotes, or null";
  const bool deep = depth_of(field) > kDeepestTarget;
  const auto json = deep ? nlohmann::json(nlohmann::json::value_t::discarded)
                         : nlohmann::json::parse(field, nullptr, false);
  if (json.is_discarded())
    reject_row(
        file, line,
        deep ? fmt::format("a target of more than {} levels", kDeepestTarget)
             : fmt::format("the target is not JSON: '{}'", base::printable(field.substr(0, 60))),
        kHint);
  return json.dump();
}

/// Takes records of fields from a CSV text.
class CsvText {
 public:
  CsvText(const std::string& file, std::string_view text) : file_(file), left_(text) {}

  std::uint64_t line() const { return line_; }

  /// Reads the next record that is not empty; returns false at the end. line() is the line where it
  /// began.
  bool next(std::vector<std::string>& fields) {
    while (!left_.empty() && (left_.front() == '\n' || left_.front() == '\r')) {
      if (left_.front() == '\n') ++next_line_;
      left_.remove_prefix(1);
    }
    line_ = next_line_;
    fields.clear();
    if (left_.empty()) return false;
    do {
      fields.push_back(!left_.empty() && left_.front() == '"' ? quoted() : plain());
    } while (take(','));
    take('\r');
    if (!left_.empty() && !take('\n'))
      reject_row(file_, line_, "something stands behind a closing quote",
                 "a quote within quotes is written twice");
    ++next_line_;
    return true;
  }

 private:
  bool take(char c) {
    if (left_.empty() || left_.front() != c) return false;
    left_.remove_prefix(1);
    return true;
  }

  std::string plain() {
    const std::size_t end = std::min(left_.find_first_of(",\r\n\""), left_.size());
    if (end < left_.size() && left_[end] == '"')
      reject_row(file_, line_, "a quote in a field that does not begin with one",
                 "put the whole field in quotes, and write a quote within them twice");
    std::string field(left_.substr(0, end));
    left_.remove_prefix(end);
    return field;
  }

  std::string quoted() {
    left_.remove_prefix(1);
    std::string field;
    while (true) {
      const std::size_t end = left_.find('"');
      if (end == std::string_view::npos)
        reject_row(file_, line_, "a quote that is never closed", "close it, or take it out");
      field.append(left_.substr(0, end));
      left_.remove_prefix(end + 1);
      if (!take('"')) break;
      field.push_back('"');
    }
    next_line_ += static_cast<std::uint64_t>(std::count(field.begin(), field.end(), '\n'));
    return field;
  }

  const std::string& file_;
  std::string_view left_;
  std::uint64_t line_ = 1;
  std::uint64_t next_line_ = 1;
};

std::size_t column(const std::vector<std::string>& header, std::string_view name) {
  return static_cast<std::size_t>(std::find(header.begin(), header.end(), name) - header.begin());
}

/// Returns a label or a split, given as text or as a whole number.
std::string text_of(const std::string& file, std::uint64_t line, const nlohmann::json& value,
                    const char* key) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) return value.dump();
  reject_row(file, line, fmt::format("\"{}\" is neither a text nor a whole number", key),
             "write the class's number or name");
}

}  // namespace

ManifestRows parse_csv(const std::string& file, std::string_view text, const std::string& masks) {
  CsvText csv(file, without_bom(text));
  std::vector<std::string> fields;
  if (!csv.next(fields))
    reject_row(file, 1, "an empty file, not a manifest", "its first line is: path,label");
  const std::vector<std::string> header = fields;
  const std::size_t path = column(header, "path");
  const std::size_t label = column(header, "label");
  const std::size_t split = column(header, "split");
  const std::size_t target = column(header, "target");
  const bool has_target = target < header.size();
  const std::size_t mask = masks.empty() ? header.size() : column(header, masks);
  std::vector<std::pair<std::size_t, std::string>> needed{{path, "path"}};
  if (!has_target && masks.empty()) needed.emplace_back(label, "label");
  if (!masks.empty()) needed.emplace_back(mask, masks);
  for (const auto& [at, name] : needed)
    if (at == header.size())
      reject_row(
          file, csv.line(),
          fmt::format("no column '{}' in the header: {}", base::printable(name),
                      base::printable(fmt::format("{}", fmt::join(header, ",")).substr(0, 80))),
          "the first line names the columns: path,label and perhaps split");
  ManifestRows result;
  result.has_split = split < header.size();
  while (csv.next(fields)) {
    if (fields.size() != header.size())
      reject_row(file, csv.line(),
                 fmt::format("{} fields where the header has {}", fields.size(), header.size()),
                 "a path that holds a comma needs quotes");
    ManifestRow row{std::move(fields[path]),
                    label < header.size() ? std::move(fields[label]) : std::string(),
                    result.has_split ? std::move(fields[split]) : std::string(),
                    has_target ? target_of(file, csv.line(), fields[target]) : std::string(),
                    mask < header.size() ? fields[mask] : std::string(),
                    csv.line()};
    check_row(file, row, masks);
    result.rows.push_back(std::move(row));
  }
  return result;
}

ManifestRows parse_jsonl(const std::string& file, std::string_view text, const std::string& masks) {
  ManifestRows result;
  text = without_bom(text);
  std::uint64_t line = 0;
  while (!text.empty()) {
    ++line;
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (one.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const auto json = nlohmann::json::parse(one, nullptr, false);
    if (!json.is_object())
      reject_row(file, line, json.is_discarded() ? "damaged JSON" : "not a JSON object",
                 "every line is {\"path\": ..., \"label\": ...}");
    ManifestRow row;
    row.line = line;
    const auto at = json.find("path");
    if (at == json.end() || !at->is_string())
      reject_row(file, line, "no \"path\" that is a text",
                 "every line is {\"path\": ..., \"label\": ...}");
    row.path = at->get<std::string>();
    if (const auto label = json.find("label"); label != json.end())
      row.label = text_of(file, line, *label, "label");
    if (const auto split = json.find("split"); split != json.end()) {
      row.split = text_of(file, line, *split, "split");
      result.has_split = true;
    }
    if (const auto target = json.find("target"); target != json.end()) {
      if (depth_of(one) > kDeepestTarget)
        reject_row(file, line, fmt::format("a line of more than {} levels", kDeepestTarget),
                   "nest the target less deeply");
      row.target = target->dump();
    }
    if (const auto mask = json.find(masks); !masks.empty() && mask != json.end())
      row.mask = text_of(file, line, *mask, masks.c_str());
    check_row(file, row, masks);
    result.rows.push_back(std::move(row));
  }
  return result;
}

}  // namespace millrace::pipeline
