// Builds one data set from the indices of all archives, and reads samples from them.
#include "pipeline/readers/tar.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/files.h"
#include "millrace/error.h"
#include "pipeline/readers/fingerprint.h"
#include "pipeline/readers/labels.h"
#include "pipeline/readers/mapped_file.h"
#include "pipeline/readers/tar_classes.h"
#include "pipeline/readers/tar_files.h"
#include "pipeline/readers/tar_index.h"

namespace millrace::pipeline {
namespace {

class TarReader final : public Reader {
 public:
  TarReader(const DataOptions& options, const TarFiles& found) {
    info_.reader = "tar";
    info_.path = options.path;
    info_.split = options.split;
    info_.encoded = true;
    info_.in_place = true;
    std::vector<TarIndex> indices;
    Fingerprint fingerprint;
    for (const std::string& file : found.files) {
      shards_.push_back(MappedFile::map(file));
      indices.push_back(index_tar(file, shards_.back().bytes()));
      fingerprint.add(indices.back().fingerprint);
      if (options.cache == Cache::cold) shards_.back().let_go();
    }
    info_.fingerprint = fingerprint.value();
    const bool by_label = has_labels(indices);
    choose(indices, options, found, by_label);
    if (by_label) {
      count_classes(options, found.folder);
    } else if (const auto count = static_cast<int>(info_.classes.size());
               options.classes != 0 && count > options.classes) {
      throw DataError(fmt::format("{}: {} classes where {} are set; '{}' is the first too many",
                                  info_.path, count, options.classes,
                                  info_.classes[static_cast<std::size_t>(options.classes)]),
                      fmt::format("set model.classes={}", count));
    }
    info_.count = samples_.size();
  }

  Sample read(std::uint64_t index, Buffer& scratch) const override {
    const Entry& sample = samples_[index];
    if (sample.size == base::kTooLong || shards_[sample.shard].damaged()) {
      Location location;
      locate(index, location);
      return base::read_located(location, scratch);
    }
    return {shards_[sample.shard].bytes().subspan(sample.data, sample.size), sample.label};
  }
  std::string name(std::uint64_t index) const override {
    const Entry& sample = samples_[index];
    const MappedFile& shard = shards_[sample.shard];
    std::string member;
    try {
      if (!shard.damaged())
        member = tar_name(shard.path(), shard.bytes(), {sample.data, 0, sample.back, 0, 0});
    } catch (const DataError&) {  // changed since it was indexed
      member.clear();
    }
    if (shard.damaged() || member.empty())
      return fmt::format("{} at byte {}", shard.path(), sample.data);
    return fmt::format("{} member {}", shard.path(), base::printable(member));
  }
  bool locate(std::uint64_t index, Location& location) const override {
    const Entry& sample = samples_[index];
    location.offset = sample.data;
    location.size = sample.size;
    location.whole_file = false;
    location.label = sample.label;
    return base::set_path(location, shards_[sample.shard].path());
  }

 private:
  struct Entry {
    std::uint64_t data;
    std::uint32_t size;
    std::uint32_t back;
    std::int32_t label;
    std::uint32_t shard;
  };

  /// Returns whether the samples have labels of their own. Throws unless all or none have.
  bool has_labels(const std::vector<TarIndex>& indices) const {
    std::uint64_t total = 0, unlabelled = 0, beside = 0;
    for (const TarIndex& index : indices) {
      total += index.samples.size();
      unlabelled += index.unlabelled;
      beside += index.unlabelled_beside;
    }
    if (unlabelled == 0) return true;
    if (unlabelled == total && beside == 0) return false;
    for (std::size_t shard = 0; shard < indices.size(); ++shard)
      for (const TarIndex::Entry& entry : indices[shard].samples)
        if (entry.label < 0)
          throw DataError(
              fmt::format(
                  "{}: at byte {}: '{}' has no label ({} of {} samples have none)",
                  shards_[shard].path(), entry.data - entry.back,
                  base::printable(tar_name(shards_[shard].path(), shards_[shard].bytes(), entry)),
                  unlabelled, total),
              "put a .cls with its class's number, or a .json with \"label\", beside it");
    return false;
  }

  /// Adopts the samples of the split.
  void choose(const std::vector<TarIndex>& indices, const DataOptions& options,
              const TarFiles& found, bool by_label) {
    std::vector<std::string> folders;
    for (const TarIndex& index : indices)
      folders.insert(folders.end(), index.folders.begin(), index.folders.end());
    TarClasses classes =
        sort_out_folders(folders, options.split, found.of_split, by_label,
                         std::filesystem::path(found.files.front()).stem(), options.path);
    info_.classes = std::move(classes.classes);
    std::size_t first_folder = 0;
    for (std::size_t shard = 0; shard < indices.size(); ++shard) {
      for (const TarIndex::Entry& entry : indices[shard].samples) {
        const std::int32_t of_folder = classes.of_folder[first_folder + entry.folder];
        if (of_folder == TarClasses::kOtherSplit) continue;
        samples_.push_back({entry.data, entry.size, entry.back, by_label ? entry.label : of_folder,
                            static_cast<std::uint32_t>(shard)});
        info_.bytes += entry.size;
      }
      first_folder += indices[shard].folders.size();
    }
    samples_.shrink_to_fit();
  }

  void count_classes(const DataOptions& options, const std::string& folder) {
    const auto largest =
        std::max_element(samples_.begin(), samples_.end(),
                         [](const Entry& a, const Entry& b) { return a.label < b.label; });
    const std::int64_t most = options.classes != 0 ? options.classes : max_classes(samples_.size());
    if (largest->label >= most) {
      const auto bad = [&](const Entry& sample) { return sample.label >= most; };
      const auto first = std::find_if(samples_.begin(), samples_.end(), bad);
      throw DataError(
          fmt::format("{}: label {} is not below {} classes ({} such labels)",
                      name(static_cast<std::uint64_t>(first - samples_.begin())), first->label,
                      most, std::count_if(samples_.begin(), samples_.end(), bad)),
          fmt::format("set model.classes={} if that is what the set holds", largest->label + 1));
    }
    info_.classes =
        read_class_names((folder.empty() ? std::string() : folder + "/") + kClassNamesFile);
    const std::int64_t least = std::int64_t{largest->label} + 1;
    const auto named = static_cast<std::int64_t>(info_.classes.size());
    if (named >= least && (options.classes == 0 || named == options.classes)) return;
    info_.classes = numbered_classes(options.classes != 0 ? options.classes : least);
  }

  std::vector<MappedFile> shards_;
  std::vector<Entry> samples_;
};

}  // namespace

std::unique_ptr<Reader> open_tar_files(const DataOptions& options,
                                       const std::vector<std::string>& files,
                                       const std::string& folder) {
  return std::make_unique<TarReader>(options, TarFiles{files, folder, true});
}

std::unique_ptr<Reader> open_tar(const DataOptions& options) {
  if (options.path.empty())
    throw DataError("data.path is empty",
                    "data.path=FILE.tar, a folder of *.tar, or 'shard-{000..003}.tar'");
  return std::make_unique<TarReader>(options, find_tars(options.path, options.split));
}

}  // namespace millrace::pipeline
