// Finds YOLO's images, and reads the label file of each.
#include "pipeline/readers/yolo.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "base/folder.h"
#include "base/located_sample.h"
#include "base/number_text.h"
#include "base/open_file.h"
#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/readers/data_set.h"
#include "pipeline/readers/folder.h"
#include "pipeline/readers/yolo_config.h"
#include "pipeline/readers/yolo_labels.h"

namespace millrace::pipeline {
namespace {

namespace fs = std::filesystem;

/// Largest text file: outlines of the most objects fit.
constexpr std::uint64_t kMaxFileBytes = 64 << 20;

YoloFolders require_folders(const DataOptions& options) {
  base::require_folder(options.path, "boxes");
  YoloFolders folders = find_yolo(options.path, options.split);
  if (folders.images.empty())
    throw MissingSplit(
        fmt::format("{}: no images and labels of split '{}'", options.path, options.split),
        "a set is images/train/*.jpg and labels/train/*.txt, or train/images and train/labels");
  return folders;
}

class YoloReader final : public Reader {
 public:
  explicit YoloReader(const DataOptions& options) : YoloReader(options, require_folders(options)) {}

  Sample read(std::uint64_t index, Buffer& scratch) const override {
    return base::read_located(location_of(*this, index), scratch);
  }
  std::string name(std::uint64_t index) const override {
    return base::printable(files_.path(index));
  }
  std::int64_t label(std::uint64_t) const override { return 0; }
  const Annotations* annotations() const override { return &annotations_; }
  bool locate(std::uint64_t index, Location& location) const override {
    const bool fits = files_.locate(index, location);
    location.label = 0;
    return fits;
  }

 private:
  YoloReader(const DataOptions& options, const YoloFolders& folders)
      : files_(folders.images, "images") {
    if (files_.count() == 0 || files_.has_loose_images())
      throw DataError(fmt::format("{}: {}", folders.images,
                                  files_.count() == 0 ? "no images" : "images beside folders"),
                      "put all images into the folder itself, or all into folders in it");
    info_.reader = "yolo";
    info_.path = options.path;
    info_.split = options.split;
    info_.count = files_.count();
    read_names(options);
    info_.encoded = true;
    info_.bytes = files_.total_bytes();
    read_labels(folders, options);
    Fingerprint fingerprint;
    fingerprint.add(files_.fingerprint());
    fingerprint.add(annotations_);
    info_.fingerprint = fingerprint.value();
  }

  /// Reads data.yaml, and classes.txt if that names no classes.
  void read_names(const DataOptions& options) {
    const std::string file = options.path + "/data.yaml";
    if (base::exists(file)) {
      Buffer scratch;
      config_ =
          parse_yolo_config(base::printable(file), text_of(file, scratch, "names: [cat, dog]"));
    }
    info_.classes = config_.names.empty() ? read_class_names(options.path + "/classes.txt")
                                          : std::move(config_.names);
    annotations_.points = config_.points;
    annotations_.flip_pairs = std::move(config_.flip_pairs);
  }

  /// Reads the label files of all images, and names the classes that have no name.
  void read_labels(const YoloFolders& folders, const DataOptions& options) {
    const bool named = !info_.classes.empty();
    const std::int64_t classes = named                  ? std::ssize(info_.classes)
                                 : options.classes != 0 ? options.classes
                                                        : max_classes(info_.count);
    annotations_.relative = true;
    std::uint64_t found = 0, empty_boxes = 0;
    Buffer scratch;
    for (std::uint64_t i = 0; i < info_.count; ++i) {
      const std::string image = files_.path(i).substr(folders.images.size());
      const std::string file = folders.labels + fs::path(image).replace_extension(".txt").string();
      const bool exists = base::exists(file);
      found += exists;
      empty_boxes +=
          parse_yolo(base::printable(file),
                     exists ? text_of(file, scratch, "CLASS X Y WIDTH HEIGHT") : std::string_view(),
                     classes, annotations_, config_.numbers_per_point);
      annotations_.image_ids.push_back(static_cast<std::int64_t>(i));
    }
    if (found == 0)
      throw DataError(
          fmt::format("{}: no label file of an image in {}", folders.labels, folders.images),
          "the labels of a.jpg lie in a.txt; an image without objects needs no file");
    if (empty_boxes > 0 && options.warn)
      options.warn(fmt::format("{}: {} without area inside their images {} left out",
                               folders.labels, base::counted(empty_boxes, "line"),
                               empty_boxes == 1 ? "is" : "are"));
    if (named) return;
    const auto highest = std::ranges::max_element(annotations_.classes);
    info_.classes = numbered_classes(options.classes != 0                    ? options.classes
                                     : highest == annotations_.classes.end() ? 1
                                                                             : *highest + 1);
  }

  /// Returns a file's text, which lies in `scratch`. `form` is that of one of its lines.
  static std::string_view text_of(const std::string& file, Buffer& scratch, const char* form) {
    const base::OpenFile open = base::open_regular(file);
    if (open.size > kMaxFileBytes)
      throw DataError(fmt::format("{}: {} bytes, too long for a text file of YOLO's",
                                  base::printable(file), open.size),
                      fmt::format("a line is {}", form));
    std::uint8_t* const bytes = scratch.reserve(open.size);
    return {reinterpret_cast<const char*>(bytes),
            base::read_at(open.descriptor.get(), bytes, open.size, 0, file.c_str())};
  }

  FolderListing files_;
  YoloConfig config_;
  Annotations annotations_;
};

}  // namespace

YoloFolders find_yolo(const std::string& folder, const std::string& split) {
  const auto pair = [&](const std::string& images, const std::string& labels) {
    YoloFolders folders{folder + "/" + images, folder + "/" + labels};
    const bool exists = base::is_folder(folders.images) && base::is_folder(folders.labels);
    return exists ? folders : YoloFolders{};
  };
  for (const std::string& one : split_names(split))
    for (const YoloFolders& found : {pair("images/" + one, "labels/" + one),
                                     pair("images/" + one + "2017", "labels/" + one + "2017"),
                                     pair(one + "/images", one + "/labels")})
      if (!found.images.empty()) return found;
  const bool whole = split == "train" && find_yolo(folder, "test").images.empty();
  return whole ? pair("images", "labels") : YoloFolders{};
}

std::unique_ptr<Reader> open_yolo(const DataOptions& options) {
  return std::make_unique<YoloReader>(options);
}

}  // namespace millrace::pipeline
