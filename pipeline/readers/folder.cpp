// Reads samples from an image folder with three system calls per file.
#include "pipeline/readers/folder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/files.h"
#include "millrace/error.h"
#include "pipeline/readers/folder_listing.h"

namespace millrace::pipeline {
namespace {

std::string last_part(const std::string& path) {
  std::error_code ignored;  // find_split() rejects a missing path
  const auto whole = std::filesystem::absolute(path, ignored).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

class FolderReader final : public Reader {
 public:
  explicit FolderReader(const DataOptions& options)
      : files_(find_split(options.path, options.split), last_part(options.path)) {
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
    Location location;
    if (!locate(index, location))
      throw DataError("the path is too long", "move the set to a shorter path");
    return base::read_located(location, scratch);
  }
  bool locate(std::uint64_t index, Location& location) const override {
    location.offset = 0;
    location.size = files_.bytes(index);
    location.whole_file = true;
    const std::size_t label = files_.label(index);
    location.label = static_cast<std::int64_t>(label);
    const std::string& root = files_.root();
    if (!base::set_path(location, root)) return false;
    location.path[root.size()] = '/';
    return files_.path_below(index, label, std::span(location.path).subspan(root.size() + 1));
  }
  std::string name(std::uint64_t index) const override {
    return base::printable(files_.path(index));
  }

 private:
  void check(const DataOptions& options) const {
    if (files_.classes().empty())
      throw DataError(fmt::format("{}: no class folders and no images", files_.root()),
                      "a set is DIR/train/CLASS/*.jpg; make one: millrace data make photos DIR");
    for (std::size_t label = 0; label < files_.classes().size(); ++label)
      if (files_.count(label) == 0)
        throw DataError(fmt::format("{}: the class folder holds no image", files_.folder(label)),
                        "remove the folder, or put images (.jpg .jpeg .png .bmp .webp .tif .tiff) "
                        "in it");
    const auto found = static_cast<int>(files_.classes().size());
    if (options.classes != 0 && found > options.classes)
      throw DataError(
          fmt::format("{}: {} class folders where {} classes are set; '{}' is the first "
                      "too many",
                      files_.root(), found, options.classes,
                      files_.classes()[static_cast<std::size_t>(options.classes)]),
          fmt::format("set model.classes={}", found));
  }

  FolderListing files_;
  base::Descriptor root_;
};

}  // namespace

std::unique_ptr<Reader> open_folder(const DataOptions& options) {
  return std::make_unique<FolderReader>(options);
}

}  // namespace millrace::pipeline
