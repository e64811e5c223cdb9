// Finds, checks and reads IDX files.
#include "pipeline/readers/idx.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/folder.h"
#include "base/located_sample.h"
#include "millrace/error.h"
#include "pipeline/readers/data_set.h"

namespace millrace::pipeline {
namespace {

constexpr std::size_t header_size(IdxFile::Kind kind) {
  return kind == IdxFile::Kind::images ? 16 : 8;
}

std::uint32_t big_endian(std::span<const std::uint8_t> bytes, std::size_t at) {
  return std::uint32_t{bytes[at]} << 24 | std::uint32_t{bytes[at + 1]} << 16 |
         std::uint32_t{bytes[at + 2]} << 8 | std::uint32_t{bytes[at + 3]};
}

/// Contents of the first bytes; `length` is the whole file's.
struct Header {
  std::uint64_t count = 0;
  std::uint64_t width = 1, height = 1;
  std::uint64_t length = 0;
};

Header parse_header(const std::string& path, IdxFile::Kind kind,
                    std::span<const std::uint8_t> bytes) {
  const bool images = kind == IdxFile::Kind::images;
  const std::size_t size = header_size(kind);
  if (bytes.size() < size)
    throw DataError(fmt::format("{}: truncated: {} bytes where the IDX header alone takes {}", path,
                                bytes.size(), size),
                    "fetch the file again");
  const std::uint32_t expected = images ? 0x00000803 : 0x00000801;
  const std::uint32_t magic = big_endian(bytes, 0);
  if (magic != expected)
    throw DataError(
        fmt::format("{}: wrong magic: expected {:08x} ({} as unsigned bytes), found {:08x}", path,
                    expected, images ? "idx3: images" : "idx1: labels", magic),
        magic >> 16 == 0x1f8b ? "it is gzip: name it .gz"
                              : "images and labels may be swapped, or this is not an IDX file");
  Header header;
  header.count = big_endian(bytes, 4);
  if (images) {
    header.height = big_endian(bytes, 8);
    header.width = big_endian(bytes, 12);
  }
  if (header.count == 0)
    throw DataError(fmt::format("{}: holds no {}", path, images ? "images" : "labels"),
                    "fetch the file again, or make a set: millrace data make digits DIR");
  constexpr std::uint64_t kMaxSide = 32'768;
  if (header.width == 0 || header.height == 0 || header.width > kMaxSide ||
      header.height > kMaxSide)
    throw DataError(fmt::format("{}: images of {}x{} pixels; each side must be 1 to {}", path,
                                header.width, header.height, kMaxSide),
                    "the header is damaged: fetch the file again");
  header.length = size + header.count * header.width * header.height;  // below 2^63
  return header;
}

MappedFile load(const std::string& path, IdxFile::Kind kind) {
  if (!path.ends_with(".gz")) return MappedFile::map(path);
  return MappedFile::inflate(path, [&](std::span<const std::uint8_t> head) {
    return parse_header(path, kind, head).length;
  });
}

std::string find_file(const std::string& folder, const std::string& split, const char* what,
                      const char* kind) {
  for (const char* separator : {"-", "."})
    for (const char* ending : {"", ".gz"}) {
      std::string path =
          fmt::format("{}/{}-{}{}{}{}", folder, split, what, separator, kind, ending);
      if (base::exists(path)) return path;
    }
  return {};
}

/// Returns the prefix of a split's files; MNIST calls its test files t10k.
std::string prefix_of(const std::string& split) { return split == "test" ? "t10k" : split; }

class IdxReader final : public Reader {
 public:
  IdxReader(const DataOptions& options, const IdxPaths& paths)
      : images_(paths.images, IdxFile::Kind::images), labels_(paths.labels, IdxFile::Kind::labels) {
    if (images_.count() != labels_.count())
      throw DataError(fmt::format("{}: {} labels, but {} has {} images", labels_.path(),
                                  labels_.count(), images_.path(), images_.count()),
                      "the two files must belong together: fetch both again");
    const int classes = check_idx_labels(labels_, options.classes);
    if (options.classes > 0) warn_of_unused_classes(options, check_idx_labels(labels_, 0));

    info_.reader = "idx";
    info_.path = options.path;
    info_.split = options.split;
    info_.count = images_.count();
    for (int label = 0; label < classes; ++label) info_.classes.push_back(std::to_string(label));
    info_.size = images_.size();
    info_.channels = 1;
    Fingerprint fingerprint;
    fingerprint.add(images_.all());
    fingerprint.add(labels_.all());
    info_.fingerprint = fingerprint.value();
    image_bytes_ = images_.items().size() / images_.count();
    info_.bytes = images_.items().size();
    info_.in_place = true;
    if (options.cache == Cache::cold) images_.let_go();
  }

  Sample read(std::uint64_t index, Buffer& scratch) const override {
    if (images_.damaged()) {
      Location location;
      locate(index, location);
      return base::read_located(location, scratch);
    }
    return {images_.items().subspan(index * image_bytes_, image_bytes_), labels_.items()[index]};
  }
  std::string name(std::uint64_t index) const override {
    return fmt::format("{} image {}", images_.path(), index);
  }
  bool locate(std::uint64_t index, Location& location) const override {
    location.offset = images_.header() + index * image_bytes_;
    location.size = image_bytes_;
    location.whole_file = false;
    location.label = labels_.items()[index];
    return images_.plain() && base::set_path(location, images_.path());
  }

 private:
  IdxFile images_;
  IdxFile labels_;
  std::size_t image_bytes_ = 0;
};

}  // namespace

IdxLayout check_idx(const std::string& path, bool images, std::span<const std::uint8_t> bytes) {
  const IdxFile::Kind kind = images ? IdxFile::Kind::images : IdxFile::Kind::labels;
  const Header header = parse_header(path, kind, bytes);
  const std::size_t found = bytes.size();
  if (found != header.length)
    throw DataError(fmt::format("{}: {}: {} bytes where its header ({} of {}x{}) makes {}", path,
                                found < header.length ? "truncated" : "longer than announced",
                                found, header.count, header.width, header.height, header.length),
                    "fetch the file again");
  return {header.count,
          {static_cast<int>(header.width), static_cast<int>(header.height)},
          header_size(kind)};
}

IdxFile::IdxFile(const std::string& path, Kind kind)
    : file_(load(path, kind)), layout_(check_idx(path, kind == Kind::images, file_.bytes())) {}

int check_idx_labels(const IdxFile& labels, int classes) {
  const std::span<const std::uint8_t> values = labels.items();
  const int largest = *std::max_element(values.begin(), values.end());
  if (classes == 0) return largest + 1;
  if (largest < classes) return classes;
  const auto bad = [classes](std::uint8_t label) { return label >= classes; };
  const auto first = std::find_if(values.begin(), values.end(), bad);
  throw DataError(fmt::format("{}: label {} at index {} is not below {} classes ({} such labels)",
                              labels.path(), *first, first - values.begin(), classes,
                              std::count_if(values.begin(), values.end(), bad)),
                  fmt::format("set model.classes={} if that is what the set holds, or fetch it "
                              "again",
                              largest + 1));
}

IdxPaths find_idx(const std::string& folder, const std::string& split) {
  const std::string prefix = prefix_of(split);
  for (const char* below : {"", "/MNIST/raw", "/raw", "/FashionMNIST/raw"}) {
    IdxPaths paths{find_file(folder + below, prefix, "images", "idx3-ubyte"),
                   find_file(folder + below, prefix, "labels", "idx1-ubyte")};
    if (!paths.images.empty() || !paths.labels.empty()) return paths;
  }
  return {};
}

std::unique_ptr<Reader> open_idx(const DataOptions& options) {
  base::require_folder(options.path, "digits");
  const IdxPaths paths = find_idx(options.path, options.split);
  const std::string prefix = prefix_of(options.split);
  if (paths.images.empty())
    throw DataError(fmt::format("{}: no {}-images-idx3-ubyte[.gz] for split '{}'", options.path,
                                prefix, options.split),
                    "check data.path and data.split, or make a set: millrace data make digits DIR");
  if (paths.labels.empty())
    throw DataError(fmt::format("{}: no {}-labels-idx1-ubyte[.gz] beside {}", options.path, prefix,
                                paths.images),
                    "images need their labels: fetch the labels file too");
  return std::make_unique<IdxReader>(options, paths);
}

}  // namespace millrace::pipeline
