// Recognises data sets, checks their structure and decodes every image.

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <utility>

#include "base/folder.h"
#include "base/located_sample.h"
#include "millrace/error.h"
#include "millrace/reader.h"
#include "pipeline/decoders/decoder.h"
#include "pipeline/decoders/label_png.h"
#include "pipeline/decoders/raw_image.h"
#include "pipeline/readers/cifar.h"
#include "pipeline/readers/coco.h"
#include "pipeline/readers/data_set.h"
#include "pipeline/readers/folder.h"
#include "pipeline/readers/idx.h"
#include "pipeline/readers/manifest.h"
#include "pipeline/readers/tar.h"
#include "pipeline/readers/url.h"
#include "pipeline/readers/yolo.h"
#include "tools/data/data.h"

namespace millrace::tools {
namespace {

bool has_tars(const std::string& path) {
  try {
    pipeline::find_tars(path, "train");
    return true;
  } catch (const pipeline::MissingSplit&) {
    return true;
  } catch (const DataError&) {
    return false;
  }
}

}  // namespace

std::string detect_reader(const std::string& path) {
  if (pipeline::is_remote(path)) return "tar";
  if (path.ends_with(".tar")) return "tar";
  if (path.ends_with(".csv") || path.ends_with(".jsonl") || path.ends_with(".ndjson"))
    return "manifest";
  if (path.ends_with(".json")) return "coco";
  for (const char* split : {"train", "test"}) {
    const pipeline::IdxPaths idx = pipeline::find_idx(path, split);
    if (!idx.images.empty() || !idx.labels.empty()) return "idx";
    if (pipeline::find_cifar(path, split).layout != nullptr) return "cifar";
    if (!pipeline::find_annotations(path, split).empty()) return "coco";
    if (!pipeline::find_yolo(path, split).images.empty()) return "yolo";
  }
  if (!base::is_folder(path)) return "folder";
  if (!pipeline::find_manifests(path).empty()) return "manifest";
  return has_tars(path) ? "tar" : "folder";
}

namespace {

constexpr const char* kSplits[] = {"train", "test"};

/// Returns whether `check` passes. Otherwise records its DataError, which names the file, as a
/// problem.
template <class Check>
bool passes(VerifyReport& report, const Check& check) {
  try {
    check();
    return true;
  } catch (const DataError& error) {
    report.problems.push_back({{}, error.what()});
    return false;
  }
}

/// Counts the samples of a set whose pixels lie in memory; opening it has checked everything else.
void tally(const Reader& reader, VerifyReport& report) {
  const DatasetInfo& info = reader.info();
  VerifySplit split{info.split, info.count, info.classes,    {},
                    info.size,  info.size,  info.fingerprint};
  split.class_counts.resize(info.classes.size());
  Buffer scratch;
  for (std::uint64_t index = 0; index < info.count; ++index)
    ++split.class_counts[static_cast<std::size_t>(reader.read(index, scratch).label)];
  report.splits.push_back(std::move(split));
}

void verify_in_memory(const VerifyOptions& options, const char* split, VerifyReport& report) {
  passes(report, [&] {
    tally(*open_reader({report.kind, options.path, split, options.classes}), report);
  });
}

void verify_idx(const VerifyOptions& options, const char* split, VerifyReport& report) {
  const pipeline::IdxPaths paths = pipeline::find_idx(options.path, split);
  if (paths.images.empty() && paths.labels.empty()) return;
  // Checks each file by itself first, so that damage to one does not hide damage to the other.
  bool sound = true;
  if (!paths.images.empty())
    sound &=
        passes(report, [&] { pipeline::IdxFile(paths.images, pipeline::IdxFile::Kind::images); });
  if (!paths.labels.empty())
    sound &=
        passes(report, [&] { pipeline::IdxFile(paths.labels, pipeline::IdxFile::Kind::labels); });
  if (sound) verify_in_memory(options, split, report);
}

void verify_cifar(const VerifyOptions& options, const char* split, VerifyReport& report) {
  const pipeline::CifarPaths paths = pipeline::find_cifar(options.path, split);
  if (paths.layout == nullptr) return;
  const int classes = options.classes == 0 ? paths.layout->classes : options.classes;
  bool sound = true;
  for (const std::string& file : paths.files)
    sound &= passes(report, [&] { pipeline::CifarFile(file, *paths.layout, classes); });
  if (sound) verify_in_memory(options, split, report);
}

/// Results of decoding a split's files.
struct Decoded {
  std::mutex mutex;
  Size smallest, largest;
  std::vector<std::pair<std::uint64_t, std::string>> failures;  ///< file, reason

  void add(Size size) {
    const std::lock_guard lock(mutex);
    if (largest.width == 0) smallest = size;
    smallest = {std::min(smallest.width, size.width), std::min(smallest.height, size.height)};
    largest = {std::max(largest.width, size.width), std::max(largest.height, size.height)};
  }
  void add(std::uint64_t index, const std::string& reason) {
    const std::lock_guard lock(mutex);
    failures.emplace_back(index, reason);
  }
};

/// Decodes a whole image: with 8 bits, or as it is stored if that is another depth or neither gray
/// nor RGB. Returns its size.
Size decode_whole(pipeline::DecodeScratch& decode, std::span<const std::uint8_t> bytes,
                  std::uint64_t max_pixels) {
  const pipeline::EncodedImage& image = decode.open(bytes, max_pixels);
  const Rect whole{0, 0, image.size.width, image.size.height};
  const bool has_levels = image.depth == Depth::u8 && (image.bands == 1 || image.bands == 3);
  if (has_levels)
    decode.decode(3, whole);
  else
    decode.decode(image.bands, whole, 0, Depth::f32);
  return image.size;
}

/// `bytes_of(index, scratch)` returns an image's bytes, or throws DataError.
template <class BytesOf>
void decode_all(const VerifyOptions& options, std::uint64_t count, const BytesOf& bytes_of,
                Decoded& found) {
  parallel_for(count, 16, options.threads, options.progress,
               [&](std::uint64_t begin, std::uint64_t end) {
                 pipeline::DecodeScratch decode;
                 Buffer scratch;
                 for (std::uint64_t index = begin; index < end; ++index) try {
                     const auto bytes = bytes_of(index, scratch);
                     found.add(decode_whole(decode, bytes, options.max_pixels));
                     if (pipeline::is_raw(bytes)) pipeline::check_raw_pixels(bytes);
                   } catch (const Error& error) {  // plugins may report damage as wrong usage
                     found.add(index, error.what());
                   }
               });
  std::sort(found.failures.begin(), found.failures.end());  // threads found them in any order
}

void verify_split_folder(const VerifyOptions& options, const char* split, const std::string& root,
                         VerifyReport& report) {
  const pipeline::FolderListing files(root, "images", options.arrays);
  if (files.classes().empty()) report.problems.push_back({root, "no class folders and no images"});
  if (options.classes != 0 && files.classes().size() > static_cast<std::size_t>(options.classes))
    report.problems.push_back({root, fmt::format("{} class folders where {} classes are set",
                                                 files.classes().size(), options.classes)});
  VerifySplit result{split, files.count(), files.classes(), {}, {}, {}, files.fingerprint()};
  for (std::size_t label = 0; label < files.classes().size(); ++label) {
    result.class_counts.push_back(files.count(label));
    if (files.count(label) == 0)
      report.problems.push_back({files.folder(label), "the class folder holds no image"});
  }
  Decoded found;
  decode_all(
      options, files.count(),
      [&](std::uint64_t index, Buffer& scratch) {
        Location location;
        location.size = files.bytes(index);
        location.whole_file = true;
        base::set_path(location, files.path(index));
        return base::read_located(location, scratch).bytes;
      },
      found);
  result.smallest = found.smallest;
  result.largest = found.largest;
  for (const auto& [index, reason] : found.failures)
    report.problems.push_back({files.path(index), reason});
  report.splits.push_back(std::move(result));
}

DataOptions options_of(const VerifyOptions& options, const std::string& kind, const char* split) {
  DataOptions data;
  data.reader = kind;
  data.path = options.path;
  data.split = split;
  data.classes = options.classes;
  data.index = IndexUse::off;
  data.masks = options.masks;
  data.arrays = options.arrays;
  return data;
}

/// Unpacks the mask of every image, whose own damage has been found.
void verify_masks(const VerifyOptions& options, const Reader& reader, VerifyReport& report) {
  std::mutex mutex;
  std::vector<std::pair<std::uint64_t, std::string>> failures;
  parallel_for(
      reader.info().count, 16, options.threads, options.progress,
      [&](std::uint64_t begin, std::uint64_t end) {
        pipeline::DecodeScratch decode;
        pipeline::LabelPng mask;
        Buffer image_bytes, mask_bytes;
        for (std::uint64_t index = begin; index < end; ++index) {
          Size image;
          try {
            image = decode.open(reader.read(index, image_bytes).bytes, options.max_pixels).size;
          } catch (const Error&) {
            continue;
          }
          try {
            mask.open(reader.mask(index, mask_bytes), options.max_pixels);
            mask.require_size(image);
            mask.pixels({0, 0, image.width, image.height}, 0);
          } catch (const DataError& error) {
            const std::lock_guard lock(mutex);
            failures.emplace_back(index, error.what());
          }
        }
      });
  std::sort(failures.begin(), failures.end());
  for (const auto& [index, reason] : failures)
    report.problems.push_back({reader.name(index), reason});
}

void verify_folder(const VerifyOptions& options, VerifyReport& report) {
  std::string missing;
  for (const char* split : kSplits) {
    std::string root;
    try {
      root = pipeline::find_split(options.path, split);
    } catch (const DataError& error) {
      missing = missing.empty() ? error.what() : missing;
      continue;  // a set may have only one split
    }
    const bool sound = passes(report, [&] { verify_split_folder(options, split, root, report); });
    if (sound && !options.masks.empty())
      passes(report, [&] {
        DataOptions data = options_of(options, report.kind, split);
        data.classes = 0;  // too many have been reported
        verify_masks(options, *open_reader(data), report);
      });
  }
  if (report.splits.empty() && report.problems.empty()) report.problems.push_back({{}, missing});
  if (report.splits.size() == 2 && report.splits[0].classes != report.splits[1].classes)
    report.problems.push_back(
        {options.path,
         fmt::format("train has {} class folders and test {}, with different names: "
                     "labels would differ in meaning",
                     report.splits[0].classes.size(), report.splits[1].classes.size())});
}

/// Verifies any set of encoded images: opens it, which checks its structure, then decodes.
void verify_encoded(const VerifyOptions& options, const char* split, VerifyReport& report,
                    std::string& missing) {
  try {
    const auto reader = open_reader(options_of(options, report.kind, split));
    const DatasetInfo& info = reader->info();
    VerifySplit result{split, info.count, info.classes, {}, {}, {}, info.fingerprint};
    result.class_counts.resize(info.classes.size());
    for (std::uint64_t index = 0; index < info.count; ++index)
      if (Location location; reader->locate(index, location))
        ++result.class_counts[static_cast<std::size_t>(location.label)];
    Decoded found;
    decode_all(
        options, info.count,
        [&](std::uint64_t index, Buffer& bytes) { return reader->read(index, bytes).bytes; },
        found);
    result.smallest = found.smallest;
    result.largest = found.largest;
    for (const auto& [index, reason] : found.failures)
      report.problems.push_back({reader->name(index), reason});
    report.splits.push_back(std::move(result));
    if (!options.masks.empty()) verify_masks(options, *reader, report);
  } catch (const pipeline::MissingSplit& error) {
    missing = error.what();  // a set may have only one split
  } catch (const DataError& error) {
    // Problems outside of splits are found in both.
    if (report.problems.empty() || report.problems.back().what != error.what())
      report.problems.push_back({{}, error.what()});
  }
}

/// Checks the indexes too. What is wrong with them comes first: bad images may be many.
void add_indexes(const VerifyOptions& options, VerifyReport& report) {
  std::vector<VerifyProblem> problems;
  for (std::string& problem : check_indexes(options.path))
    if (std::none_of(report.problems.begin(), report.problems.end(),
                     [&](const VerifyProblem& known) { return known.what == problem; }))
      problems.push_back({{}, std::move(problem)});
  report.problems.insert(report.problems.begin(), std::make_move_iterator(problems.begin()),
                         std::make_move_iterator(problems.end()));
}

}  // namespace

VerifyReport verify_data(const VerifyOptions& options) {
  VerifyReport report;
  report.kind = detect_reader(options.path);
  if (!options.masks.empty() && report.kind != "folder" && report.kind != "tar" &&
      report.kind != "manifest")
    throw UsageError(
        fmt::format("--masks {}: {} is of kind {}", options.masks, options.path, report.kind),
        "folders of images, archives and manifests have masks: give such a set, as "
        "data/boxes/images");
  if (report.kind == "tar" || report.kind == "manifest" || report.kind == "coco" ||
      report.kind == "yolo") {
    std::string missing;
    for (const char* split : kSplits) verify_encoded(options, split, report, missing);
    if (report.splits.empty() && report.problems.empty()) report.problems.push_back({{}, missing});
    // The archives of a remote set are compared with its index when they are read.
    if (report.kind == "tar" && !pipeline::is_remote(options.path)) add_indexes(options, report);
    return report;
  }
  base::require_folder(options.path, "digits");
  if (report.kind == "folder") {
    verify_folder(options, report);
    return report;
  }
  for (const char* split : kSplits)
    report.kind == "idx" ? verify_idx(options, split, report)
                         : verify_cifar(options, split, report);
  return report;
}

}  // namespace millrace::tools
