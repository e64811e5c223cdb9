// Finds COCO's annotation files and their images.
#include "pipeline/readers/coco.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/folder.h"
#include "base/located_sample.h"
#include "base/number_text.h"
#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/readers/coco_json.h"
#include "pipeline/readers/data_set.h"
#include "pipeline/readers/mapped_file.h"

namespace millrace::pipeline {
namespace {

namespace fs = std::filesystem;

/// Returns the annotation file that `options` name.
std::string annotations_of(const DataOptions& options) {
  if (base::is_folder(options.path)) {
    if (std::string file = find_annotations(options.path, options.split); !file.empty())
      return file;
    throw MissingSplit(
        fmt::format("{}: no annotations for split '{}'", options.path, options.split),
        fmt::format(
            "add annotations/instances_{}.json to the folder{}", options.split,
            options.split == "train" ? ", or set data.path to the annotation file itself" : ""));
  }
  if (options.split != "train" && base::exists(options.path))
    throw MissingSplit(
        fmt::format("{}: a single annotation file provides only split 'train', not '{}'",
                    options.path, options.split),
        "give the folder that holds annotations/instances_val.json");
  return options.path;
}

/// Returns the folder that a set's images lie in, by one of them.
std::string find_images(const std::string& annotations, const std::string& first) {
  const fs::path file(annotations);
  const fs::path folder = file.has_parent_path() ? file.parent_path() : ".";
  const std::string stem = file.stem();
  const std::string split = stem.substr(stem.rfind('_') + 1);
  for (const fs::path& place :
       {folder, folder / ".." / split, folder / ".." / "images" / split, folder / "images"})
    if (base::exists((place / first).string())) return place.lexically_normal();
  return folder;  // reading reports each image that is missing
}

class CocoReader final : public Reader {
 public:
  explicit CocoReader(const DataOptions& options) {
    const std::string file = annotations_of(options);
    {
      const MappedFile mapped = MappedFile::map(file);
      set_ = parse_coco(
          file, {reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size()},
          options.instance_masks);
    }
    if (set_.files.empty())
      throw DataError(fmt::format("{}: the list \"images\" is empty", file), "add images");
    if (set_.classes.empty())
      throw DataError(fmt::format("{}: the list \"categories\" is empty", file), "add categories");
    if (set_.empty_boxes > 0 && options.warn)
      options.warn(fmt::format("{}: {} of boxes without area inside their images {} left out", file,
                               base::counted(set_.empty_boxes, "annotation"),
                               set_.empty_boxes == 1 ? "is" : "are"));
    const std::string folder = find_images(file, set_.files.front());
    info_.reader = "coco";
    info_.path = options.path;
    info_.split = options.split;
    info_.count = set_.files.size();
    info_.classes = set_.classes;
    info_.encoded = true;
    info_.fingerprint = list_files(folder);
    set_.files = {};
  }

  Sample read(std::uint64_t index, Buffer& scratch) const override {
    return base::read_located(location_of(*this, index), scratch);
  }
  std::string name(std::uint64_t index) const override { return base::printable(path(index)); }
  std::int64_t label(std::uint64_t) const override { return 0; }
  const Annotations* annotations() const override { return &set_.annotations; }
  bool locate(std::uint64_t index, Location& location) const override {
    location.offset = 0;
    location.size = bytes_[index];
    location.whole_file = true;
    location.label = 0;
    return base::set_path(location, path(index));
  }

 private:
  const char* path(std::uint64_t index) const { return paths_.data() + starts_[index]; }

  /// Notes the files' sizes, and returns a hash of them and of all annotations.
  std::uint64_t list_files(const std::string& folder) {
    Fingerprint fingerprint;
    for (std::uint64_t i = 0; i < info_.count; ++i) {
      const std::string file = folder + "/" + set_.files[i];
      starts_.push_back(paths_.size());
      paths_.insert(paths_.end(), file.c_str(), file.c_str() + file.size() + 1);
      // A missing file is an error of its sample, handled by loader.on_error.
      struct stat status {};
      const bool found = stat(path(i), &status) == 0;
      bytes_.push_back(base::listed_size(found ? static_cast<std::uint64_t>(status.st_size) : 0));
      info_.bytes += bytes_.back();
      fingerprint.add(std::string_view(set_.files[i]));
      fingerprint.add(std::uint64_t{bytes_.back()});
    }
    fingerprint.add(set_.annotations);
    return fingerprint.value();
  }

  CocoSet set_;
  std::vector<char> paths_;  ///< each zero-terminated
  std::vector<std::uint64_t> starts_;
  std::vector<std::uint32_t> bytes_;  ///< per image: its file's size
};

}  // namespace

std::string find_annotations(const std::string& folder, const std::string& split) {
  for (const std::string& one : split_names(split))
    for (const std::string& name : {fmt::format("annotations/instances_{}.json", one),
                                    fmt::format("annotations/instances_{}2017.json", one),
                                    fmt::format("{}/_annotations.coco.json", one)})
      if (std::string file = folder + "/" + name; base::exists(file)) return file;
  return {};
}

std::unique_ptr<Reader> open_coco(const DataOptions& options) {
  if (options.path.empty())
    throw DataError("data.path is empty", "data.path=FILE.json, or the folder of a COCO set");
  return std::make_unique<CocoReader>(options);
}

}  // namespace millrace::pipeline
