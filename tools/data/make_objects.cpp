// Draws objects in parallel and writes CIFAR-10's binary files.
#include "tools/data/make_objects.h"

#include <fmt/format.h>

#include <vector>

#include "base/rng.h"
#include "millrace/error.h"
#include "tools/data/object_drawing.h"
#include "tools/data/output_file.h"
#include "tools/data/output_folder.h"

namespace millrace::tools {
namespace {

constexpr std::size_t kRecord = 1 + kObjectPixels;  // the label, then the pixels
constexpr std::uint32_t kTrainFiles = 5;
constexpr const char* kNamesFile = "batches.meta.txt";

/// A file's range of samples, counted through the split.
struct File {
  std::string name;
  std::uint32_t epoch;  ///< separates the random draws of the two splits
  std::uint32_t first, count;
};

std::vector<File> files_of(const ObjectsOptions& options) {
  std::vector<File> files;
  for (std::uint32_t i = 0; i < kTrainFiles; ++i) {
    const auto start = [&](std::uint64_t file) {
      return static_cast<std::uint32_t>(file * options.train / kTrainFiles);
    };
    files.push_back(
        {fmt::format("data_batch_{}.bin", i + 1), 0, start(i), start(i + 1) - start(i)});
  }
  files.push_back({"test_batch.bin", 1, 0, options.test});
  return files;
}

std::vector<std::uint8_t> records(const File& file, const ObjectsOptions& options,
                                  const Progress& progress) {
  std::vector<std::uint8_t> bytes(std::size_t{file.count} * kRecord);
  parallel_for(
      file.count, 500, options.threads, progress, [&](std::uint64_t begin, std::uint64_t end) {
        for (std::uint64_t i = begin; i < end; ++i) {
          Draw draw(
              base::stream({options.seed, file.epoch, file.first + i}, base::op_id("objects")));
          const auto label = static_cast<int>(draw.integer(kObjectNames.size()));
          std::uint8_t* record = bytes.data() + i * kRecord;
          record[0] = static_cast<std::uint8_t>(label);
          draw_object(label, draw,
                      std::span<std::uint8_t, kObjectPixels>(record + 1, kObjectPixels));
        }
      });
  return bytes;
}

}  // namespace

void make_objects(const ObjectsOptions& options) {
  if (options.train < kTrainFiles || options.test == 0)
    throw UsageError(
        "a data set needs at least five training images, one per file, and one test image",
        "give larger counts");
  const std::vector<File> files = files_of(options);
  std::vector<std::string> names{kNamesFile};
  for (const File& file : files) names.push_back(file.name);
  prepare_folder(options.path, names, options.force);

  std::uint64_t before = 0;
  for (const File& file : files) {
    write_or_match(options.path + "/" + file.name,
                   records(file, options,
                           [&](std::uint64_t done, std::uint64_t) {
                             if (options.progress)
                               options.progress(before + done, options.train + options.test);
                           }),
                   options.force);
    before += file.count;
  }
  const std::string names_text = fmt::format("{}\n", fmt::join(kObjectNames, "\n"));
  write_or_match(options.path + "/" + kNamesFile,
                 std::vector<std::uint8_t>(names_text.begin(), names_text.end()), options.force);
}

}  // namespace millrace::tools
