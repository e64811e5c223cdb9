// Finds, maps and checks CIFAR's binary files, and reads samples from them.
#include "pipeline/readers/cifar.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/folder.h"
#include "base/located_sample.h"
#include "millrace/error.h"
#include "pipeline/readers/data_set.h"

namespace millrace::pipeline {
namespace {

constexpr CifarLayout kCifar10{"CIFAR-10", 10, 1, "batches.meta.txt"};
constexpr CifarLayout kCifar100{"CIFAR-100", 100, 2, "fine_label_names.txt"};

/// A published set: the folder that its archive unpacks to and the files of a split.
struct Edition {
  const CifarLayout& layout;
  const char* folder;
  std::vector<std::string> train, test;
};

const std::vector<Edition>& editions() {
  static const std::vector<Edition> all{
      {kCifar10,
       "/cifar-10-batches-bin",
       {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
        "data_batch_5.bin"},
       {"test_batch.bin"}},
      {kCifar100, "/cifar-100-binary", {"train.bin"}, {"test.bin"}}};
  return all;
}

/// Returns the names in the text file if it has one per class, otherwise "0", "1", ...
std::vector<std::string> class_names(const std::string& path, int classes) {
  std::vector<std::string> names = read_class_names(path);
  if (names.size() == static_cast<std::size_t>(classes)) return names;
  return numbered_classes(classes);
}

class CifarReader final : public Reader {
 public:
  CifarReader(const DataOptions& options, const CifarPaths& paths) {
    const CifarLayout& layout = *paths.layout;
    const int classes = options.classes == 0 ? layout.classes : options.classes;
    Fingerprint fingerprint;
    for (const std::string& path : paths.files) {
      files_.emplace_back(path, layout, classes);
      starts_.push_back(info_.count);
      info_.count += files_.back().count();
      fingerprint.add(files_.back().all());
      if (options.cache == Cache::cold) files_.back().let_go();
    }
    info_.reader = "cifar";
    info_.path = options.path;
    info_.split = options.split;
    info_.classes = class_names(paths.folder + "/" + layout.class_names, classes);
    info_.size = {32, 32};
    info_.channels = 3;
    info_.planar = true;
    info_.bytes = info_.count * CifarLayout::kPixels;
    info_.in_place = true;
    info_.fingerprint = fingerprint.value();
  }

  Sample read(std::uint64_t index, Buffer& scratch) const override {
    const std::size_t file = file_of(index);
    const std::uint64_t record = index - starts_[file];
    if (!files_[file].damaged()) return {files_[file].pixels(record), files_[file].label(record)};
    Location location;
    locate(index, location);
    return base::read_located(location, scratch);
  }
  bool locate(std::uint64_t index, Location& location) const override {
    const std::size_t file = file_of(index);
    return files_[file].locate(index - starts_[file], location);
  }
  std::string name(std::uint64_t index) const override {
    const std::size_t file = file_of(index);
    return fmt::format("{} record {}", files_[file].path(), index - starts_[file]);
  }

 private:
  std::size_t file_of(std::uint64_t index) const {
    return static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), index) -
                                    starts_.begin() - 1);
  }

  std::vector<CifarFile> files_;
  std::vector<std::uint64_t> starts_;  ///< index of each file's first record
};

}  // namespace

void check_cifar(const std::string& path, std::span<const std::uint8_t> bytes,
                 const CifarLayout& layout, int classes) {
  const std::size_t size = bytes.size();
  if (size == 0) throw DataError(fmt::format("{}: holds no images", path), "fetch the file again");
  if (size % layout.record() != 0)
    throw DataError(fmt::format("{}: truncated or not {}: {} bytes, not a multiple of the {} bytes "
                                "of a record",
                                path, layout.name, size, layout.record()),
                    "fetch the binary version of the set again");
  for (std::size_t at = layout.label_bytes - 1; at < size; at += layout.record())
    if (bytes[at] >= classes)
      throw DataError(fmt::format("{}: label {} at index {} is not below {} classes", path,
                                  bytes[at], at / layout.record(), classes),
                      fmt::format("{} has {} classes: check model.classes, or fetch the file again",
                                  layout.name, layout.classes));
}

CifarFile::CifarFile(const std::string& path, const CifarLayout& layout, int classes)
    : file_(MappedFile::map(path)), layout_(&layout) {
  check_cifar(path, file_.bytes(), layout, classes);
  for (std::size_t at = layout.label_bytes - 1; at < file_.bytes().size(); at += layout.record())
    labels_.push_back(file_.bytes()[at]);
}

bool CifarFile::locate(std::uint64_t index, Location& location) const {
  location.offset = index * layout_->record() + layout_->label_bytes;
  location.size = CifarLayout::kPixels;
  location.whole_file = false;
  location.label = label(index);
  return base::set_path(location, path());
}

std::span<const std::uint8_t> CifarFile::pixels(std::uint64_t index) const {
  return file_.bytes().subspan(index * layout_->record() + layout_->label_bytes,
                               CifarLayout::kPixels);
}

CifarPaths find_cifar(const std::string& folder, const std::string& split) {
  if (split != "train" && split != "test") return {};
  for (const Edition& edition : editions())
    for (const std::string& place : {folder, folder + edition.folder}) {
      CifarPaths paths{&edition.layout, place, {}};
      for (const std::string& name : split == "train" ? edition.train : edition.test)
        paths.files.push_back(place + "/" + name);
      if (std::any_of(paths.files.begin(), paths.files.end(), base::exists)) return paths;
    }
  return {};
}

std::unique_ptr<Reader> open_cifar(const DataOptions& options) {
  base::require_folder(options.path, "objects");
  const CifarPaths paths = find_cifar(options.path, options.split);
  if (paths.layout == nullptr)
    throw DataError(
        fmt::format("{}: no CIFAR files for split '{}' (data_batch_1.bin or train.bin; "
                    "test_batch.bin or test.bin)",
                    options.path, options.split),
        "check data.path and data.split; the binary version of the set is needed, not the Python "
        "one");
  warn_of_unused_classes(options, paths.layout->classes);
  return std::make_unique<CifarReader>(options, paths);
}

}  // namespace millrace::pipeline
