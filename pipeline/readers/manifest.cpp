// Parses manifests in CSV and JSONL.
#include "pipeline/readers/manifest.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/files.h"
#include "millrace/error.h"
#include "pipeline/readers/data_set.h"
#include "pipeline/readers/mapped_file.h"

namespace millrace::pipeline {
namespace {

[[noreturn]] void fail(const std::string& file, std::uint64_t line, const std::string& reason,
                       const char* hint) {
  throw DataError(fmt::format("{}:{}: {}", file, line, reason), hint);
}

std::string_view without_bom(std::string_view text) {
  constexpr std::string_view kBom = "\xef\xbb\xbf";
  return text.starts_with(kBom) ? text.substr(kBom.size()) : text;
}

void check_row(const std::string& file, const ManifestRow& row) {
  if (row.path.empty())
    fail(file, row.line, "the path is empty", "give the image's path, or remove the row");
  if (row.path.find('\0') != std::string::npos)
    fail(file, row.line, "the path holds a zero byte", "mend or remove the row");
  if (row.label.empty() && row.target.empty())
    fail(file, row.line, fmt::format("'{}' has no label", base::printable(row.path)),
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
    fail(file, line,
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
      fail(file_, line_, "something stands behind a closing quote",
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
      fail(file_, line_, "a quote in a field that does not begin with one",
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
        fail(file_, line_, "a quote that is never closed", "close it, or take it out");
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
  fail(file, line, fmt::format("\"{}\" is neither a text nor a whole number", key),
       "write the class's number or name");
}

}  // namespace

ManifestRows parse_csv(const std::string& file, std::string_view text) {
  CsvText csv(file, without_bom(text));
  std::vector<std::string> fields;
  if (!csv.next(fields))
    fail(file, 1, "an empty file, not a manifest", "its first line is: path,label");
  const std::vector<std::string> header = fields;
  const std::size_t path = column(header, "path");
  const std::size_t label = column(header, "label");
  const std::size_t split = column(header, "split");
  const std::size_t target = column(header, "target");
  const bool has_target = target < header.size();
  for (const auto& [at, name] : {std::pair(path, "path"), std::pair(label, "label")})
    if (at == header.size() && !(at == label && has_target))
      fail(file, csv.line(),
           fmt::format("no column '{}' in the header: {}", name,
                       base::printable(fmt::format("{}", fmt::join(header, ",")).substr(0, 80))),
           "the first line names the columns: path,label and perhaps split");
  ManifestRows result;
  result.has_split = split < header.size();
  while (csv.next(fields)) {
    if (fields.size() != header.size())
      fail(file, csv.line(),
           fmt::format("{} fields where the header has {}", fields.size(), header.size()),
           "a path that holds a comma needs quotes");
    ManifestRow row{
        std::move(fields[path]), label < header.size() ? std::move(fields[label]) : std::string(),
        result.has_split ? std::move(fields[split]) : std::string(),
        has_target ? target_of(file, csv.line(), fields[target]) : std::string(), csv.line()};
    check_row(file, row);
    result.rows.push_back(std::move(row));
  }
  return result;
}

ManifestRows parse_jsonl(const std::string& file, std::string_view text) {
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
      fail(file, line, json.is_discarded() ? "damaged JSON" : "not a JSON object",
           "every line is {\"path\": ..., \"label\": ...}");
    ManifestRow row;
    row.line = line;
    const auto at = json.find("path");
    if (at == json.end() || !at->is_string())
      fail(file, line, "no \"path\" that is a text",
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
        fail(file, line, fmt::format("a line of more than {} levels", kDeepestTarget),
             "nest the target less deeply");
      row.target = target->dump();
    }
    check_row(file, row);
    result.rows.push_back(std::move(row));
  }
  return result;
}

// Finds manifests, gives their labels classes and reads the files that they list.
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kUint32Max = std::numeric_limits<std::uint32_t>::max();

struct Manifest {
  std::string file;
  std::string split;  ///< taken from the file's name, or empty
  ManifestRows table;
};

Manifest load(const std::string& file) {
  const MappedFile mapped = MappedFile::map(file);
  const std::string_view text(reinterpret_cast<const char*>(mapped.bytes().data()),
                              mapped.bytes().size());
  const std::string ending = fs::path(file).extension();
  const bool json =
      ending == ".jsonl" || ending == ".ndjson" || (ending != ".csv" && text.starts_with('{'));
  Manifest manifest{file, {}, json ? parse_jsonl(file, text) : parse_csv(file, text)};
  if (manifest.table.rows.empty())
    throw DataError(fmt::format("{}: the manifest has no rows", file),
                    "each row is an image's path and its label");
  return manifest;
}

/// Adds rows' targets to a table. They are numeric if all rows of all splits hold equally many.
class TargetTable {
 public:
  explicit TargetTable(const std::vector<Manifest>& manifests) {
    const Manifest* without = nullptr;
    const ManifestRow* row_without = nullptr;
    for (const Manifest& manifest : manifests)
      for (const ManifestRow& row : manifest.table.rows) {
        if (row.target.empty()) {
          without = &manifest;
          row_without = &row;
        } else if (!look_at(row.target)) {
          fail(manifest.file, row.line, "a number of the target is too large for float32",
               "scale the targets");
        }
      }
    if (any_ && row_without != nullptr)
      fail(without->file, row_without->line, "no target, and other rows have one",
           "give it one; null stands for none");
    table_.numeric = any_ && numeric_;
    if (table_.numeric) table_.width = static_cast<std::size_t>(length_);
  }

  bool any() const { return any_; }
  void add(const std::string& target) {
    if (!table_.numeric) {
      table_.text += target;
      table_.ends.push_back(table_.text.size());
      return;
    }
    const auto json = nlohmann::json::parse(target);
    if (json.is_number()) table_.numbers.push_back(json.get<float>());
    if (json.is_array())
      for (const auto& number : json) table_.numbers.push_back(number.get<float>());
  }
  Targets take() { return std::move(table_); }

 private:
  /// Keeps `numeric_` and `length_`: 0 for a number, otherwise that of the list. Returns whether
  /// all numbers fit float32.
  bool look_at(const std::string& target) {
    const bool first = !std::exchange(any_, true);
    if (!numeric_) return true;
    const auto json = nlohmann::json::parse(target);
    const auto is_number = [](const auto& one) { return one.is_number(); };
    const bool list =
        json.is_array() && !json.empty() && std::all_of(json.begin(), json.end(), is_number);
    const std::ptrdiff_t length = list ? static_cast<std::ptrdiff_t>(json.size()) : 0;
    if (first) length_ = length;
    numeric_ = (list || json.is_number()) && length == length_;
    const auto fits = [](const auto& one) {
      return std::abs(one.template get<double>()) <= std::numeric_limits<float>::max();
    };
    if (!numeric_) return true;
    return list ? std::all_of(json.begin(), json.end(), fits) : fits(json);
  }

  bool any_ = false;
  bool numeric_ = true;
  std::ptrdiff_t length_ = 0;
  Targets table_;
};

class ManifestReader final : public Reader {
 public:
  ManifestReader(const DataOptions& options, const std::vector<Manifest>& manifests) {
    info_.reader = "manifest";
    info_.path = options.path;
    info_.split = options.split;
    info_.encoded = true;
    const Labels labels(manifests, options.classes);
    info_.classes = labels.classes();
    TargetTable targets(manifests);
    Fingerprint fingerprint;
    for (const Manifest& manifest : manifests) {
      const std::string folder = fs::path(manifest.file).parent_path();
      for (const ManifestRow& row : manifest.table.rows)
        if (belongs(row, manifest, options.split)) {
          add(row, manifest.file, folder, labels, fingerprint);
          if (!targets.any()) continue;
          targets.add(row.target);
          fingerprint.add(std::string_view(row.target));
        }
    }
    if (targets.any()) targets_ = targets.take();
    if (images_.empty())
      throw MissingSplit(fmt::format("{}: no row for split '{}'", options.path, options.split),
                         "give the manifest a column split, or the folder a test.csv");
    names_.shrink_to_fit();
    images_.shrink_to_fit();
    info_.count = images_.size();
    info_.fingerprint = fingerprint.value();
  }

  Sample read(std::uint64_t index, Buffer& scratch) const override {
    Location location;
    if (!locate(index, location))
      throw DataError("the path is too long", "move the set to a shorter path");
    return base::read_located(location, scratch);
  }
  std::string name(std::uint64_t index) const override {
    const Image& image = images_[index];
    return fmt::format("{} (line {})", base::printable(names_.data() + image.name), image.line);
  }
  const Targets* targets() const override { return targets_ ? &*targets_ : nullptr; }
  bool locate(std::uint64_t index, Location& location) const override {
    const Image& image = images_[index];
    location.offset = 0;
    location.size = image.bytes;
    location.whole_file = true;
    location.label = image.label;
    return base::set_path(location, names_.data() + image.name);
  }

 private:
  struct Image {
    std::uint64_t name;  ///< offset in names_
    std::uint32_t bytes;
    std::int32_t label;
    std::uint32_t line;
  };

  /// Maps labels to classes: numbers if all labels are numbers, otherwise names, sorted bytewise.
  /// Reads all splits, so that each split gets the same classes. Where no row has a label, all have
  /// class 0.
  class Labels {
   public:
    Labels(const std::vector<Manifest>& manifests, int classes) {
      if (without_labels(manifests)) {
        max_ = 1;
        classes_ = numbered_classes(std::max(1, classes));
        none_ = true;
        return;
      }
      std::int64_t largest = -1;
      std::uint64_t rows = 0;
      for (const Manifest& manifest : manifests)
        for (const ManifestRow& row : manifest.table.rows) {
          ++rows;
          const auto number = parse_label(row.label);
          largest = numbers_ && number ? std::max(largest, *number) : largest;
          numbers_ = numbers_ && number.has_value();
        }
      if (numbers_) {
        max_ = classes != 0 ? classes : max_classes(rows);
        classes_ = numbered_classes(classes != 0 ? classes : std::min(largest + 1, max_));
        return;
      }
      for (const Manifest& manifest : manifests)
        for (const ManifestRow& row : manifest.table.rows)
          if (classes_.empty() || classes_.back() != row.label) classes_.push_back(row.label);
      std::sort(classes_.begin(), classes_.end());
      classes_.erase(std::unique(classes_.begin(), classes_.end()), classes_.end());
      max_ = static_cast<std::int64_t>(classes_.size());
      if (classes != 0 && max_ > classes)
        throw DataError(
            fmt::format("{}: {} class names where {} classes are set; '{}' is the first too many",
                        manifests.front().file, max_, classes,
                        base::printable(classes_[static_cast<std::size_t>(classes)])),
            fmt::format("set model.classes={}", max_));
    }

    const std::vector<std::string>& classes() const { return classes_; }
    std::int32_t of(const ManifestRow& row, const std::string& file) const {
      if (none_) return 0;
      const std::int64_t label =
          numbers_
              ? *parse_label(row.label)
              : std::lower_bound(classes_.begin(), classes_.end(), row.label) - classes_.begin();
      if (label >= max_)
        throw DataError(
            fmt::format("{}:{}: label {} is not below {} classes", file, row.line, label, max_),
            label < kMaxClasses
                ? fmt::format("set model.classes={} if that is what the set holds", label + 1)
                : fmt::format("labels count classes from 0, and lie below {}", kMaxClasses));
      return static_cast<std::int32_t>(label);
    }

   private:
    /// Returns whether no row has a label. Throws DataError if some have one.
    static bool without_labels(const std::vector<Manifest>& manifests) {
      std::uint64_t with = 0, without = 0;
      for (const Manifest& manifest : manifests)
        for (const ManifestRow& row : manifest.table.rows) ++(row.label.empty() ? without : with);
      if (with > 0 && without > 0)
        for (const Manifest& manifest : manifests)
          for (const ManifestRow& row : manifest.table.rows)
            if (row.label.empty())
              fail(manifest.file, row.line,
                   fmt::format("'{}' has no label, and other rows have one",
                               base::printable(row.path)),
                   "give the class's number or name, or leave all labels out");
      return with == 0;
    }

    bool none_ = false;
    bool numbers_ = true;
    std::int64_t max_ = 0;
    std::vector<std::string> classes_;
  };

  static bool belongs(const ManifestRow& row, const Manifest& manifest, const std::string& split) {
    const std::string& own =
        !row.split.empty() || manifest.split.empty() ? row.split : manifest.split;
    if (own.empty()) return split == "train";
    const auto names = split_names(split);
    return std::find(names.begin(), names.end(), own) != names.end();
  }

  void add(const ManifestRow& row, const std::string& file, const std::string& folder,
           const Labels& labels, Fingerprint& fingerprint) {
    const std::string path =
        row.path.starts_with('/') || folder.empty() ? row.path : folder + "/" + row.path;
    // A missing file is an error of its sample, handled by loader.on_error.
    struct stat status {};
    const std::uint64_t size =
        stat(path.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
    images_.push_back({names_.size(), base::listed_size(size), labels.of(row, file),
                       static_cast<std::uint32_t>(std::min(row.line, kUint32Max))});
    names_.insert(names_.end(), path.c_str(), path.c_str() + path.size() + 1);
    info_.bytes += size;
    fingerprint.add(std::string_view(row.path));
    fingerprint.add(size);
    fingerprint.add(static_cast<std::uint64_t>(images_.back().label));
  }

  std::vector<char> names_;  ///< paths, each zero-terminated
  std::vector<Image> images_;
  std::optional<Targets> targets_;
};

}  // namespace

std::vector<std::string> find_manifests(const std::string& path) {
  if (!base::is_folder(path)) return {path};
  std::vector<std::string> found;
  for (const char* name : {"train", "test", "val", "valid"})
    for (const char* ending : {".csv", ".jsonl"})
      if (const std::string file = path + "/" + name + ending; base::exists(file))
        found.push_back(file);
  for (const char* name : {"/manifest.csv", "/manifest.jsonl"})
    if (found.empty() && base::exists(path + name)) found.push_back(path + name);
  return found;
}

std::unique_ptr<Reader> open_manifest(const DataOptions& options) {
  if (options.path.empty())
    throw DataError("data.path is empty", "data.path=FILE.csv or FILE.jsonl");
  const std::vector<std::string> files = find_manifests(options.path);
  if (files.empty())
    throw DataError(fmt::format("{}: no manifest (train.csv, train.jsonl, manifest.csv or "
                                "manifest.jsonl)",
                                options.path),
                    "data.path names the file, or the folder that holds it");
  std::vector<Manifest> manifests;
  for (const std::string& file : files) {
    manifests.push_back(load(file));
    const std::string stem = fs::path(file).stem();
    if (base::is_folder(options.path) && stem != "manifest") manifests.back().split = stem;
  }
  return std::make_unique<ManifestReader>(options, manifests);
}

}  // namespace millrace::pipeline
