#include "pipeline/readers/folder.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "pipeline/error.h"
#include "pipeline/readers/files.h"
#include "pipeline/readers/folder_listing.h"

namespace millrace {
namespace {

std::string last_part(const std::string& path) {
  std::error_code ignored;  // a path that is not there is refused by find_split()
  const auto whole = std::filesystem::absolute(path, ignored).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

/// Reads `size` bytes and finds the file's end right behind them.
bool read_whole(int descriptor, std::uint8_t* out, std::size_t size, const char* path) {
  std::size_t done = 0;
  while (true) {
    std::uint8_t beyond = 0;
    const bool full = done == size;
    const ssize_t count =
        full ? ::read(descriptor, &beyond, 1) : ::read(descriptor, out + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      throw DataError(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)),
                      "check the disk");
    if (count == 0 || full) return full && count == 0;
    done += static_cast<std::size_t>(count);
  }
}

class FolderReader final : public Reader {
 public:
  explicit FolderReader(const DataOptions& options)
      : files_(find_split(options.path, options.split), last_part(options.path)) {
    check(options);
    info_.reader = "folder";
    info_.path = options.path;
    info_.split = options.split;
    info_.count = files_.count();
    info_.classes = files_.classes();
    info_.encoded = true;
    info_.fingerprint = files_.fingerprint();
  }

  Sample read(std::uint64_t index, Buffer& scratch) const override {
    std::array<char, PATH_MAX> path;
    if (!files_.path(index, path.data(), path.size()))
      throw DataError(fmt::format("{}: the path is too long", name(index)),
                      "move the set to a shorter path");
    const OpenFile file = open_regular(path.data());
    const std::size_t size = files_.bytes(index);
    std::uint8_t* bytes = scratch.reserve(size);
    if (file.size != size || !read_whole(file.descriptor.get(), bytes, size, path.data()))
      throw DataError(fmt::format("{}: changed while the set is in use: {} bytes, listed with {}",
                                  path.data(), file.size, size),
                      "leave the set alone while it is used; start again to list it anew");
    return {{bytes, size}, static_cast<std::int64_t>(files_.label(index))};
  }
  std::string name(std::uint64_t index) const override { return files_.path(index); }

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
};

}  // namespace

std::unique_ptr<Reader> open_folder(const DataOptions& options) {
  return std::make_unique<FolderReader>(options);
}

}  // namespace millrace
