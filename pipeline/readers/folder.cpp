// Walks the class folders and builds the compact list of files.
#include "pipeline/readers/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <system_error>
#include <utility>

#include "base/descriptor.h"
#include "base/folder.h"
#include "base/located_sample.h"
#include "base/open_file.h"
#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/decoders/image_files.h"
#include "pipeline/readers/data_set.h"

namespace millrace::pipeline {
namespace {

constexpr int kMaxDepth = 16;
constexpr std::uint64_t kMax32 = std::numeric_limits<std::uint32_t>::max();

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

/// Calls visit(name, descriptor of the folder, d_type) for each entry that is not hidden.
template <class Visit>
void for_each_entry(const std::string& path, const Visit& visit) {
  const std::unique_ptr<DIR, CloseFolder> folder(opendir(path.c_str()));
  errno = folder ? 0 : errno;
  if (folder)
    while (const dirent* entry = readdir(folder.get())) {
      if (entry->d_name[0] != '.') visit(entry->d_name, dirfd(folder.get()), entry->d_type);
      errno = 0;
    }
  if (const int error = errno; error != 0) {
    base::require_resources(path, error);
    throw DataError(fmt::format("{}: cannot be listed: {}", path, std::strerror(error)),
                    "check the folder's permissions and the disk");
  }
}

/// Returns whether an entry is a folder or a link to one. Asks the file system only if `type` does
/// not tell.
bool leads_to_folder(int folder, const char* name, unsigned char type) {
  if (type != DT_UNKNOWN && type != DT_LNK) return type == DT_DIR;
  struct stat status {};
  return fstatat(folder, name, &status, 0) == 0 && S_ISDIR(status.st_mode);
}

struct TopLevel {
  std::vector<std::string> folders;
  bool has_images = false;
};

TopLevel look_into(const std::string& root, bool arrays) {
  TopLevel found;
  for_each_entry(root, [&](const char* name, int folder, unsigned char type) {
    if (leads_to_folder(folder, name, type))
      found.folders.emplace_back(name);
    else if (has_image_ending(name, arrays))
      found.has_images = true;
  });
  std::sort(found.folders.begin(), found.folders.end());
  return found;
}

}  // namespace

std::string find_split(const std::string& folder, const std::string& split) {
  base::require_folder(folder, "photos");
  const std::vector<std::string> names = split_names(split);
  for (const std::string& name : names)
    if (base::is_folder(folder + "/" + name)) return folder + "/" + name;

  const bool has_splits = base::is_folder(folder + "/train") || base::is_folder(folder + "/test") ||
                          base::is_folder(folder + "/val") || base::is_folder(folder + "/valid");
  if (split == "train" && !has_splits) return folder;
  throw MissingSplit(fmt::format("{}: no folder for split '{}' (looked for {})", folder, split,
                                 fmt::join(names, ", ")),
                     "give the set one folder per split: train/CLASS/..., test/CLASS/...");
}

FolderListing::FolderListing(std::string root, std::string lone_class, bool arrays)
    : root_(std::move(root)), arrays_(arrays) {
  TopLevel top = look_into(root_, arrays);
  lone_ = top.folders.empty() && top.has_images;
  loose_ = !lone_ && top.has_images;
  classes_ = std::move(top.folders);
  if (lone_) classes_.push_back(std::move(lone_class));
  for (std::size_t label = 0; label < classes_.size(); ++label) {
    starts_.push_back(files_.size());
    const auto first = std::ssize(files_);
    add_files(folder(label), "", 0);
    std::sort(files_.begin() + first, files_.end(), [this](const File& a, const File& b) {
      return std::strcmp(arena_.data() + a.name, arena_.data() + b.name) < 0;
    });
  }
  starts_.push_back(files_.size());
  arena_.shrink_to_fit();
  files_.shrink_to_fit();
}

void FolderListing::add_files(const std::string& folder, const std::string& inner, int depth) {
  if (depth > kMaxDepth)
    throw DataError(fmt::format("{}: folders nested more than {} deep", folder, kMaxDepth),
                    "a link may lead back to a folder above it: remove it");
  std::vector<std::string> below;
  for_each_entry(folder, [&](const char* name, int descriptor, unsigned char type) {
    if (!has_image_ending(name, arrays_)) {
      if (!lone_ && leads_to_folder(descriptor, name, type)) below.emplace_back(name);
      return;
    }
    struct stat status {};
    if (fstatat(descriptor, name, &status, 0) != 0)
      throw DataError(fmt::format("{}/{}: {}", folder, base::printable(name), std::strerror(errno)),
                      "the file was removed, or a link points nowhere");
    if (!S_ISREG(status.st_mode))
      throw DataError(fmt::format("{}/{}: named like an image but not a regular file", folder,
                                  base::printable(name)),
                      "remove it or move it away");
    add_file(inner + name, static_cast<std::uint64_t>(status.st_size));
  });
  for (const std::string& name : below)
    add_files(folder + "/" + name, inner + name + "/", depth + 1);
}

void FolderListing::add_file(const std::string& name, std::uint64_t size) {
  if (arena_.size() + name.size() >= kMax32)
    throw DataError(fmt::format("{}: too many files: their names take over 4 GiB", root_),
                    "split the set");
  files_.push_back({static_cast<std::uint32_t>(arena_.size()), base::listed_size(size)});
  arena_.insert(arena_.end(), name.c_str(), name.c_str() + name.size() + 1);
}

std::size_t FolderListing::label(std::uint64_t index) const {
  return static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), index) -
                                  starts_.begin() - 1);
}

std::string FolderListing::folder(std::size_t label) const {
  return lone_ ? root_ : root_ + "/" + classes_[label];
}

std::string FolderListing::path(std::uint64_t index) const {
  return folder(label(index)) + "/" + file(index);
}

bool FolderListing::path_below(std::uint64_t index, std::size_t label, std::span<char> out) const {
  const std::string_view name = file(index);
  const std::string_view above = lone_ ? std::string_view() : classes_[label];
  if (above.size() + name.size() + 2 > out.size()) return false;
  char* end = std::copy(above.begin(), above.end(), out.data());
  if (!lone_) *end++ = '/';
  *std::copy(name.begin(), name.end(), end) = '\0';
  return true;
}

bool FolderListing::locate(std::uint64_t index, Location& location) const {
  const std::size_t label = this->label(index);
  location.offset = 0;
  location.size = bytes(index);
  location.whole_file = true;
  location.label = static_cast<std::int64_t>(label);
  if (!base::set_path(location, root_)) return false;
  location.path[root_.size()] = '/';
  return path_below(index, label, std::span(location.path).subspan(root_.size() + 1));
}

std::uint64_t FolderListing::total_bytes() const {
  std::uint64_t total = 0;
  for (const File& one : files_) total += one.bytes;
  return total;
}

std::uint64_t FolderListing::fingerprint() const {
  Fingerprint fingerprint;
  for (std::size_t label = 0; label < classes_.size(); ++label) {
    fingerprint.add(std::string_view(lone_ ? std::string() : classes_[label]));
    for (std::uint64_t index = starts_[label]; index < starts_[label + 1]; ++index) {
      fingerprint.add(std::string_view(file(index)));
      fingerprint.add(std::uint64_t{bytes(index)});
    }
  }
  return fingerprint.value();
}

// Reads samples from an image folder with three system calls per file.
namespace {

std::string last_part(const std::string& path) {
  std::error_code ignored;  // find_split() rejects a missing path
  const auto whole = std::filesystem::absolute(path, ignored).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

class FolderReader final : public Reader {
 public:
  explicit FolderReader(const DataOptions& options)
      : files_(find_split(options.path, options.split), last_part(options.path), options.arrays) {
    check(options);
    root_ = base::Descriptor(open(files_.root().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (const int error = root_.get() < 0 ? errno : 0; error != 0) {
      base::require_resources(files_.root(), error);
      throw DataError(fmt::format("{}: cannot be opened: {}", files_.root(), std::strerror(error)),
                      "check the folder's permissions");
    }
    info_.reader = "folder";
    info_.path = options.path;
    info_.split = options.split;
    info_.count = files_.count();
    info_.classes = files_.classes();
    info_.encoded = true;
    info_.fingerprint = files_.fingerprint();
    info_.bytes = files_.total_bytes();
    if (!options.masks.empty()) find_masks(options);
  }

  /// Opens, reads and closes the file. Its size is known from the listing; a read that asks for one
  /// byte more and does not get it has seen the whole file.
  Sample read(std::uint64_t index, Buffer& scratch) const override {
    const std::size_t label = files_.label(index);
    const std::size_t size = files_.bytes(index);
    std::array<char, PATH_MAX> path;
    if (size < base::kTooLong && files_.path_below(index, label, path)) {
      const base::Descriptor file(
          openat(root_.get(), path.data(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
      std::uint8_t* bytes = scratch.reserve(size + 1);
      if (file.get() >= 0 && ::read(file.get(), bytes, size + 1) == static_cast<ssize_t>(size))
        return {{bytes, size}, static_cast<std::int64_t>(label)};
    }
    // Read unusual files in pieces, or report what is wrong.
    return base::read_located(location_of(*this, index), scratch);
  }
  std::int64_t label(std::uint64_t index) const override {
    return static_cast<std::int64_t>(files_.label(index));
  }
  bool locate(std::uint64_t index, Location& location) const override {
    return files_.locate(index, location);
  }
  std::string name(std::uint64_t index) const override {
    return base::printable(files_.path(index));
  }
  std::span<const std::uint8_t> mask(std::uint64_t index, Buffer& scratch) const override {
    return read_mask_file(*this, index, scratch);
  }
  bool locate_mask(std::uint64_t index, Location& location) const override {
    constexpr std::string_view kEnding = ".png";
    if (!base::set_path(location, masks_)) return false;
    location.path[masks_.size()] = '/';
    const std::span<char> below = std::span(location.path).subspan(masks_.size() + 1);
    if (!files_.path_below(index, files_.label(index), below)) return false;
    char* const name = below.data() + std::string_view(below.data()).rfind('/') + 1;
    char* const dot = name + std::string_view(name).rfind('.');
    if (dot + kEnding.size() >= below.data() + below.size()) return false;
    *std::copy(kEnding.begin(), kEnding.end(), dot) = '\0';
    location.offset = 0;
    location.size = mask_bytes_[index];
    location.whole_file = true;
    location.label = 0;
    return true;
  }

 private:
  /// Notes the masks' sizes. A missing one is an error of its sample.
  void find_masks(const DataOptions& options) {
    const std::string_view root = files_.root();
    masks_ = options.masks + std::string(root.substr(options.path.size()));
    std::error_code missing;  // then no mask is found below
    if (std::filesystem::equivalent(masks_, root, missing))
      throw UsageError(fmt::format("data.masks={}: {} is the folder of the images, and every file "
                                   "there counts as one",
                                   options.masks, masks_),
                       "move the masks to a folder of their own");
    Fingerprint fingerprint;
    fingerprint.add(info_.fingerprint);
    std::uint64_t found = 0;
    Location location;
    for (std::uint64_t index = 0; index < info_.count; ++index) {
      mask_bytes_.push_back(0);
      struct stat status {};
      if (locate_mask(index, location) && stat(location.path.data(), &status) == 0) {
        mask_bytes_.back() = base::listed_size(static_cast<std::uint64_t>(status.st_size));
        ++found;
      }
      fingerprint.add(std::uint64_t{mask_bytes_.back()});
      info_.bytes += mask_bytes_.back();
    }
    if (found == 0)
      throw DataError(fmt::format("data.masks={}: no image has a mask; that of the first would be "
                                  "{}",
                                  options.masks, base::printable(location_of_mask(0))),
                      "put the mask of DIR/SPLIT/.../NAME.jpg at MASKS/SPLIT/.../NAME.png");
    info_.masks = true;
    info_.fingerprint = fingerprint.value();
  }
  std::string location_of_mask(std::uint64_t index) const {
    Location location;
    return locate_mask(index, location) ? location.path.data() : masks_;
  }

  void check(const DataOptions& options) const {
    if (files_.classes().empty())
      throw DataError(fmt::format("{}: no class folders and no images", files_.root()),
                      "a set is DIR/train/CLASS/*.jpg; make one: millrace data make photos DIR");
    for (std::size_t label = 0; label < files_.classes().size(); ++label)
      if (files_.count(label) == 0)
        throw DataError(
            fmt::format("{}: the class folder holds no image", files_.folder(label)),
            fmt::format("remove the folder, or put images ({}) in it", image_endings()));
    const auto found = static_cast<int>(files_.classes().size());
    if (options.classes != 0 && found > options.classes)
      throw DataError(
          fmt::format("{}: {} class folders where {} classes are set; '{}' is the first "
                      "too many",
                      files_.root(), found, options.classes,
                      files_.classes()[static_cast<std::size_t>(options.classes)]),
          fmt::format("set model.classes={}", found));
    warn_of_unused_classes(options, found);
  }

  FolderListing files_;
  base::Descriptor root_;
  std::string masks_;                      ///< folder of the split's masks
  std::vector<std::uint32_t> mask_bytes_;  ///< per sample: its mask's size; 0: missing
};

}  // namespace

std::unique_ptr<Reader> open_folder(const DataOptions& options) {
  return std::make_unique<FolderReader>(options);
}

}  // namespace millrace::pipeline
