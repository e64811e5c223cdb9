// Finds manifests, gives their labels classes and reads the files that they list.
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

#include "base/folder.h"
#include "base/located_sample.h"
#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/readers/data_set.h"
#include "pipeline/readers/manifest_rows.h"
#include "pipeline/readers/mapped_file.h"

namespace millrace::pipeline {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kUint32Max = std::numeric_limits<std::uint32_t>::max();

struct Manifest {
  std::string file;
  std::string split;  ///< taken from the file's name, or empty
  ManifestRows table;
};

Manifest load(const std::string& file, const std::string& masks) {
  const MappedFile mapped = MappedFile::map(file);
  const std::string_view text(reinterpret_cast<const char*>(mapped.bytes().data()),
                              mapped.bytes().size());
  const std::string ending = fs::path(file).extension();
  const bool json =
      ending == ".jsonl" || ending == ".ndjson" || (ending != ".csv" && text.starts_with('{'));
  Manifest manifest{file, {}, json ? parse_jsonl(file, text, masks) : parse_csv(file, text, masks)};
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
          reject_row(manifest.file, row.line, "a number of the target is too large for float32",
                     "scale the targets");
        }
      }
    if (any_ && row_without != nullptr)
      reject_row(without->file, row_without->line, "no target, and other rows have one",
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
    info_.masks = !options.masks.empty();
    const Labels labels(manifests, options.classes);
    info_.classes = labels.classes();
    TargetTable targets(manifests);
    Fingerprint fingerprint;
    for (const Manifest& manifest : manifests) {
      const std::string folder = fs::path(manifest.file).parent_path();
      for (const ManifestRow& row : manifest.table.rows)
        if (belongs(row, manifest, options.split)) {
          add(row, manifest.file, folder, labels, fingerprint);
          if (info_.masks) add_mask(row, folder, fingerprint);
          if (!targets.any()) continue;
          targets.add(row.target);
          fingerprint.add(std::string_view(row.target));
        }
    }
    if (targets.any()) targets_ = targets.take();
    if (images_.empty())
      throw MissingSplit(fmt::format("{}: no row for split '{}'", options.path, options.split),
                         "give the manifest a column split, or the folder a test.csv");
    if (info_.masks &&
        std::ranges::all_of(masks_, [](const Mask& mask) { return mask.bytes == 0; }))
      throw DataError(
          fmt::format("data.masks={}: no image has a mask; that of {} would be {}", options.masks,
                      name(0), base::printable(names_.data() + masks_[0].name)),
          "the column holds paths, from the manifest's folder on");
    names_.shrink_to_fit();
    images_.shrink_to_fit();
    info_.count = images_.size();
    info_.fingerprint = fingerprint.value();
  }

  Sample read(std::uint64_t index, Buffer& scratch) const override {
    return base::read_located(location_of(*this, index), scratch);
  }
  std::string name(std::uint64_t index) const override {
    const Image& image = images_[index];
    return fmt::format("{} (line {})", base::printable(names_.data() + image.name), image.line);
  }
  std::span<const std::uint8_t> mask(std::uint64_t index, Buffer& scratch) const override {
    if (names_[masks_[index].name] == '\0')
      throw DataError("it has no mask", "name one in the column that data.masks names");
    return read_mask_file(*this, index, scratch);
  }
  bool locate_mask(std::uint64_t index, Location& location) const override {
    const Mask& mask = masks_[index];
    if (names_[mask.name] == '\0') return false;
    location.offset = 0;
    location.size = mask.bytes;
    location.whole_file = true;
    location.label = 0;
    return base::set_path(location, names_.data() + mask.name);
  }
  const Targets* targets() const override { return targets_ ? &*targets_ : nullptr; }
  std::int64_t label(std::uint64_t index) const override { return images_[index].label; }
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
  struct Mask {
    std::uint64_t name;   ///< offset in names_
    std::uint32_t bytes;  ///< 0: there is no such file
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
              reject_row(manifest.file, row.line,
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
    const std::uint64_t name = names_.size();
    const std::uint64_t size = add_file(row.path, folder);
    images_.push_back({name, base::listed_size(size), labels.of(row, file),
                       static_cast<std::uint32_t>(std::min(row.line, kUint32Max))});
    fingerprint.add(std::string_view(row.path));
    fingerprint.add(size);
    fingerprint.add(static_cast<std::uint64_t>(images_.back().label));
  }

  void add_mask(const ManifestRow& row, const std::string& folder, Fingerprint& fingerprint) {
    const std::uint64_t name = names_.size();
    const std::uint64_t size = add_file(row.mask, folder);
    masks_.push_back({name, base::listed_size(size)});
    fingerprint.add(std::string_view(row.mask));
    fingerprint.add(size);
  }

  /// Appends a file's path to names_. Returns the file's size, or 0 if it is missing, which is an
  /// error of its sample, handled by loader.on_error.
  std::uint64_t add_file(const std::string& listed, const std::string& folder) {
    const bool whole = listed.empty() || listed.starts_with('/') || folder.empty();
    const std::string path = whole ? listed : folder + "/" + listed;
    names_.insert(names_.end(), path.c_str(), path.c_str() + path.size() + 1);
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) return 0;
    info_.bytes += static_cast<std::uint64_t>(status.st_size);
    return static_cast<std::uint64_t>(status.st_size);
  }

  std::vector<char> names_;  ///< paths, each zero-terminated
  std::vector<Image> images_;
  std::vector<Mask> masks_;  ///< of the images, if masks are handed out
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
    manifests.push_back(load(file, options.masks));
    const std::string stem = fs::path(file).stem();
    if (base::is_folder(options.path) && stem != "manifest") manifests.back().split = stem;
  }
  return std::make_unique<ManifestReader>(options, manifests);
}

}  // namespace millrace::pipeline
