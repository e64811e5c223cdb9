// Reads data sets from tar archives.
#include "pipeline/readers/tar.h"

#include <fmt/core.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <map>
#include <memory>

#include "base/descriptor.h"
#include "base/folder.h"
#include "base/located_sample.h"
#include "base/open_file.h"
#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/decoders/raw_image.h"
#include "pipeline/readers/data_set.h"
#include "pipeline/readers/kept_open.h"
#include "pipeline/readers/listing.h"
#include "pipeline/readers/mapped_file.h"
#include "pipeline/readers/set_index.h"
#include "pipeline/readers/tar_index.h"
#include "pipeline/readers/tar_members.h"

namespace millrace::pipeline {

namespace {

class TarReader final : public Reader {
 public:
  TarReader(const DataOptions& options, const TarFiles& found, std::uint64_t max_listed)
      : wanted_(options) {
    info_.reader = "tar";
    info_.path = options.path;
    info_.split = options.split;
    info_.encoded = true;
    info_.members = options.members;
    info_.masks = wanted_.mask;
    if (!open_unlisted(options, found, max_listed)) open_listed(options, found);
    seen_.watch(options, info_.count);
  }
  Sample read(std::uint64_t index, Buffer& scratch) const override {
    const Entry sample = entry(index);
    if (!wanted_.names.empty()) return read_group(index, sample, scratch);
    const Shard& shard = shards_[sample.shard];
    if (shard.file && sample.size != base::kTooLong) {
      if (sample.size >= kMappedFrom && holds_raw(shard, sample))
        if (const std::uint8_t* pixels = map_raw(shard, sample, scratch))
          return {{pixels, sample.size}, sample.label};
      std::uint8_t* bytes = scratch.reserve(sample.size);
      if (base::read_at(shard.file.get(), bytes, sample.size, sample.data, shard.path.c_str()) ==
          sample.size)
        return {{bytes, sample.size}, sample.label};
    }
    Location location;
    locate(sample, location);
    return read_slowly(location, shard, scratch);
  }
  std::span<const std::uint8_t> mask(std::uint64_t index, Buffer& scratch) const override {
    return read(index, scratch).mask;
  }
  std::string name(std::uint64_t index) const override {
    try {
      const Entry sample = entry(index);
      const Shard& shard = shards_[sample.shard];
      const std::string member = member_name(shard, sample.data, sample.back);
      return member.empty() ? fmt::format("{} at byte {}", shard.path, sample.data)
                            : fmt::format("{} member {}", shard.path, base::printable(member));
    } catch (const std::exception&) {  // a name for a message must not fail
      const Shard& shard = shard_of(index);
      return fmt::format("{} sample {}", shard.path, index - shard.first);
    }
  }
  std::int64_t label(std::uint64_t index) const override { return entry(index).label; }
  bool locate(std::uint64_t index, Location& location) const override {
    return locate(entry(index), location);
  }

 private:
  struct Shard {
    std::string path;
    base::Descriptor file;  ///< none: opened for each read
    FileStamp stamp;
    std::unique_ptr<ShardRecords> records;  ///< none: the set has a list
    std::uint64_t first = 0;                ///< number of its first sample, with `records`
    std::size_t first_folder = 0;           ///< number of its first folder, with `records`
  };
  struct Entry {
    std::uint64_t data;
    std::uint32_t size;
    std::uint32_t back;
    std::int32_t label;
    std::uint32_t shard;
  };

  enum class Content : std::uint8_t { unknown, raw, other };

  /// Opens a set of more than `max_listed` samples by its set index, and keeps no list of them.
  /// Returns false where that is not possible: then the set is listed, which also reports what is
  /// wrong.
  bool open_unlisted(const DataOptions& options, const TarFiles& found, std::uint64_t max_listed) {
    if (options.index == IndexUse::off) return false;
    const std::string folder = found.folder.empty() ? std::string() : found.folder + "/";
    SetIndex set;
    try {
      if (!base::exists(folder + kSetIndexFile)) return false;
      set =
          parse_set_index(folder + kSetIndexFile, MappedFile::map(folder + kSetIndexFile).bytes());
    } catch (const DataError&) {
      return false;
    }
    std::map<std::string_view, const SetIndex::Shard*> by_name;
    for (const SetIndex::Shard& shard : set.shards) by_name[shard.name] = &shard;
    std::vector<const SetIndex::Shard*> listed;
    SetIndex::Shard all;
    std::vector<std::string> folders;
    for (const std::string& file : found.files) {
      const auto shard = file.starts_with(folder)
                             ? by_name.find(std::string_view(file).substr(folder.size()))
                             : by_name.end();
      if (shard == by_name.end()) return false;
      listed.push_back(shard->second);
      all.samples += listed.back()->samples;
      all.image_bytes += listed.back()->image_bytes;
      all.unlabelled += listed.back()->unlabelled;
      all.unlabelled_beside += listed.back()->unlabelled_beside;
      all.largest_label = std::max(all.largest_label, listed.back()->largest_label);
      folders.insert(folders.end(), listed.back()->folders.begin(), listed.back()->folders.end());
    }
    const bool by_label = all.unlabelled == 0;
    if (all.samples <= max_listed || (!by_label && all.unlabelled != all.samples) ||
        (!by_label && all.unlabelled_beside > 0 && options.members.empty()) ||
        (by_label && all.largest_label >= most_classes(options, all.samples)))
      return false;
    TarClasses classes = classify(options, found, folders, by_label);
    if (std::count(classes.of_folder.begin(), classes.of_folder.end(), TarClasses::kOtherSplit) > 0)
      return false;
    if (!open_records(found, listed)) {
      shards_.clear();
      kept_.clear();
      info_.archives.clear();
      return false;
    }
    info_.classes = std::move(classes.classes);
    if (by_label) {
      name_classes(options, found.folder, all.largest_label);
    } else {
      check_classes(options);
      class_of_folder_ = std::move(classes.of_folder);
    }
    info_.count = all.samples;
    info_.bytes = all.image_bytes;
    return true;
  }

  /// Opens the archives and the records of their indexes. Returns false if one does not fit.
  bool open_records(const TarFiles& found, const std::vector<const SetIndex::Shard*>& listed) {
    Fingerprint fingerprint;
    std::uint64_t first = 0;
    std::size_t folder = 0;
    for (std::size_t i = 0; i < listed.size(); ++i) {
      const SetIndex::Shard& shard = *listed[i];
      const std::string& file = found.files[i];
      base::OpenFile open = base::open_regular(file);
      const FileStamp stamp = stamp_of(open.descriptor.get(), file);
      if (!kept_.add()) open.descriptor.close();
      auto records = ShardRecords::open(
          file, stamp, {shard.samples, shard.fingerprint, shard.sha256, shard.folders.size()},
          kept_.add());
      if (records == nullptr) return false;
      describe(file, shard.fingerprint, shard.sha256);
      fingerprint.add(shard.fingerprint);
      shards_.push_back(
          {file, std::move(open.descriptor), stamp, std::move(records), first, folder});
      first += shard.samples;
      folder += shard.folders.size();
    }
    info_.fingerprint = fingerprint.value();
    return true;
  }

  void describe(const std::string& file, std::uint64_t fingerprint, const Sha256& sha256) {
    info_.archives.push_back({std::filesystem::path(file).filename(), fingerprint, sha256, file});
  }

  /// Returns whether the set is one of raw images. The first large sample that is read decides.
  bool holds_raw(const Shard& shard, const Entry& sample) const {
    const Content known = content_.load(std::memory_order_relaxed);
    if (known != Content::unknown) return known == Content::raw;
    std::array<std::uint8_t, RawImage::kHeaderBytes> head{};
    const bool raw = base::read_at(shard.file.get(), head.data(), head.size(), sample.data,
                                   shard.path.c_str()) == head.size() &&
                     is_raw(head);
    content_.store(raw ? Content::raw : Content::other, std::memory_order_relaxed);
    return raw;
  }

  /// Maps a raw image, so that only those of its rows are brought in that the augmentations read.
  /// Returns null if it has to be copied: it is not a raw image, or a mapped file was truncated
  /// before.
  const std::uint8_t* map_raw(const Shard& shard, const Entry& sample, Buffer& scratch) const {
    MappedPart& part = MappedPart::of(scratch);
    if (part.damaged() || sample.data + sample.size + kTailSlack > shard.stamp.size) return nullptr;
    const std::uint8_t* bytes = part.map(shard.file.get(), sample.data, sample.size);
    return bytes != nullptr && is_raw({bytes, sample.size}) ? bytes : nullptr;
  }

  /// Reads a sample with its members.
  Sample read_group(std::uint64_t index, const Entry& sample, Buffer& scratch) const {
    const Shard& shard = shards_[sample.shard];
    const TarGroup group({sample.data, sample.size, sample.back, sample.label, 0},
                         surroundings(index, shard));
    std::uint8_t* bytes = group.reserve(scratch, wanted_);
    if (!shard.file || base::read_at(shard.file.get(), bytes, group.size(), group.begin(),
                                     shard.path.c_str()) != group.size()) {
      Location location;
      locate(sample, location);
      location.offset = group.begin();
      location.size = group.size();
      read_slowly(location, shard, scratch);
    }
    const Sample found = group.find(wanted_, scratch);
    seen_.add(found);
    return found;
  }

  TarSurroundings surroundings(std::uint64_t index, const Shard& shard) const {
    if (shard.records == nullptr) return around_[index];
    const std::uint64_t own = index - shard.first;
    const std::uint64_t behind = own + 1;
    std::optional<TarIndex::Entry> last, next;
    if (own > 0) last = shard.records->at(own - 1);
    if (behind < shard.records->count()) next = shard.records->at(behind);
    return surroundings_of(last ? &*last : nullptr, shard.records->at(own), next ? &*next : nullptr,
                           shard.stamp.size);
  }

  /// Returns the archive of a sample of a set without a list.
  const Shard& shard_of(std::uint64_t index) const {
    const auto behind = std::upper_bound(
        shards_.begin(), shards_.end(), index,
        [](std::uint64_t wanted, const Shard& shard) { return wanted < shard.first; });
    return *std::prev(behind);
  }

  /// Returns where a sample lies: from the list, or from its archive's index.
  Entry entry(std::uint64_t index) const {
    if (!samples_.empty()) return samples_[index];
    const Shard& shard = shard_of(index);
    const TarIndex::Entry one = shard.records->at(index - shard.first);
    const std::int32_t label =
        class_of_folder_.empty() ? one.label : class_of_folder_[shard.first_folder + one.folder];
    if (label < 0 || static_cast<std::size_t>(label) >= info_.classes.size())
      throw DataError(
          fmt::format("{}: the index lists label {}, the index of the set none above {}",
                      index_path(shard.path), label, info_.classes.size() - 1),
          "make the indexes again: millrace data index FOLDER");
    return {one.data, one.size, one.back, label,
            static_cast<std::uint32_t>(&shard - shards_.data())};
  }

  /// Opens the set with a list of its samples.
  void open_listed(const DataOptions& options, const TarFiles& found) {
    std::vector<TarIndex> indices;
    Fingerprint fingerprint;
    Listings listings(options.index, options.warn);
    for (const std::string& file : found.files) {
      base::OpenFile open = base::open_regular(file);
      const FileStamp stamp = stamp_of(open.descriptor.get(), file);
      Sha256 sha256{};
      indices.push_back(listings.list(file, stamp, sha256));
      describe(file, indices.back().fingerprint, sha256);
      fingerprint.add(indices.back().fingerprint);
      if (!kept_.add()) open.descriptor.close();
      shards_.push_back({file, std::move(open.descriptor), stamp, nullptr, 0, 0});
    }
    listings.finish();
    info_.fingerprint = fingerprint.value();
    const bool by_label = has_labels(indices, !options.members.empty());
    choose(indices, options, found, by_label);
    if (by_label) {
      const auto largest =
          std::max_element(samples_.begin(), samples_.end(),
                           [](const Entry& a, const Entry& b) { return a.label < b.label; });
      if (largest->label >= most_classes(options, samples_.size()))
        reject_labels(options, largest->label);
      name_classes(options, found.folder, largest->label);
    } else {
      check_classes(options);
    }
    info_.count = samples_.size();
  }

  bool locate(const Entry& sample, Location& location) const {
    location.offset = sample.data;
    location.size = sample.size;
    location.whole_file = false;
    location.label = sample.label;
    return base::set_path(location, shards_[sample.shard].path);
  }

  /// Reads a part of an archive that is not kept open, or reports why one cannot be read.
  static Sample read_slowly(const Location& location, const Shard& shard, Buffer& scratch) {
    if (shard.file) return base::read_located(location, shard.file.get(), scratch);
    const base::OpenFile open = base::open_regular(shard.path);
    const FileStamp now = stamp_of(open.descriptor.get(), shard.path);
    if (now.inode != shard.stamp.inode || now.device != shard.stamp.device)
      throw DataError(fmt::format("{}: replaced while the set is in use", shard.path),
                      "leave the set alone while it is used; restart to list it again");
    return base::read_located(location, open.descriptor.get(), scratch);
  }

  /// Returns the name of the image at `data`, or nothing if the archive was changed.
  static std::string member_name(const Shard& shard, std::uint64_t data, std::uint32_t back) {
    try {
      base::OpenFile open;
      if (!shard.file) open = base::open_regular(shard.path);
      const int file = shard.file ? shard.file.get() : open.descriptor.get();
      const std::uint64_t size = stamp_of(file, shard.path).size;
      if (data > size || back > data) return {};
      std::vector<std::uint8_t> headers(back);
      if (base::read_at(file, headers.data(), back, data - back, shard.path.c_str()) != back)
        return {};
      return tar_name(shard.path, headers, size - data);
    } catch (const DataError&) {
      return {};
    }
  }

  /// Returns whether the samples have labels of their own. Throws unless all or none have.
  /// Where members are handed out, a .json without a number is no label.
  bool has_labels(const std::vector<TarIndex>& indices, bool members) const {
    std::uint64_t total = 0, unlabelled = 0, beside = 0;
    for (const TarIndex& index : indices) {
      total += index.samples.size();
      unlabelled += index.unlabelled;
      beside += index.unlabelled_beside;
    }
    if (unlabelled == 0) return true;
    if (unlabelled == total && (beside == 0 || members)) return false;
    for (std::size_t shard = 0; shard < indices.size(); ++shard)
      for (const TarIndex::Entry& entry : indices[shard].samples)
        if (entry.label < 0)
          throw DataError(
              fmt::format("{}: at byte {}: '{}' has no label ({} of {} samples have none)",
                          shards_[shard].path, entry.data - entry.back,
                          base::printable(member_name(shards_[shard], entry.data, entry.back)),
                          unlabelled, total),
              "put a .cls with its class's number, or a .json with \"label\", beside it");
    return false;
  }

  static TarClasses classify(const DataOptions& options, const TarFiles& found,
                             const std::vector<std::string>& folders, bool by_label) {
    return classify_folders(folders, options.split, found.of_split, by_label,
                            std::filesystem::path(found.files.front()).stem(), options.path);
  }

  /// Adopts the samples of the split.
  void choose(std::vector<TarIndex>& indices, const DataOptions& options, const TarFiles& found,
              bool by_label) {
    std::vector<std::string> folders;
    for (const TarIndex& index : indices)
      folders.insert(folders.end(), index.folders.begin(), index.folders.end());
    TarClasses classes = classify(options, found, folders, by_label);
    info_.classes = std::move(classes.classes);
    std::size_t first_folder = 0, count = 0;
    for (const TarIndex& index : indices) count += index.samples.size();
    samples_.reserve(count);
    if (!wanted_.names.empty()) around_.reserve(count);
    for (std::size_t shard = 0; shard < indices.size(); ++shard) {
      std::vector<TarSurroundings> around;
      if (!wanted_.names.empty())
        around = all_surroundings(indices[shard], shards_[shard].stamp.size);
      for (std::size_t i = 0; i < indices[shard].samples.size(); ++i) {
        const TarIndex::Entry& entry = indices[shard].samples[i];
        const std::int32_t of_folder = classes.of_folder[first_folder + entry.folder];
        if (of_folder == TarClasses::kOtherSplit) continue;
        if (!around.empty()) around_.push_back(around[i]);
        samples_.push_back({entry.data, entry.size, entry.back, by_label ? entry.label : of_folder,
                            static_cast<std::uint32_t>(shard)});
        info_.bytes += entry.size;
      }
      first_folder += indices[shard].folders.size();
      indices[shard].samples = std::vector<TarIndex::Entry>();  // `= {}` would keep its memory
      if (shard % 64 == 63) malloc_trim(0);  // otherwise a large set takes twice its memory
    }
    samples_.shrink_to_fit();
  }

  static std::int64_t most_classes(const DataOptions& options, std::uint64_t samples) {
    return options.classes != 0 ? options.classes : max_classes(samples);
  }

  [[noreturn]] void reject_labels(const DataOptions& options, std::int64_t largest) const {
    const std::int64_t most = most_classes(options, samples_.size());
    const auto bad = [&](const Entry& sample) { return sample.label >= most; };
    const auto first = std::find_if(samples_.begin(), samples_.end(), bad);
    throw DataError(
        fmt::format("{}: label {} is not below {} classes ({} such labels)",
                    name(static_cast<std::uint64_t>(first - samples_.begin())), first->label, most,
                    std::count_if(samples_.begin(), samples_.end(), bad)),
        fmt::format("set model.classes={} if that is what the set holds", largest + 1));
  }

  /// Names the classes of a set whose samples have labels.
  void name_classes(const DataOptions& options, const std::string& folder, std::int64_t largest) {
    info_.classes =
        read_class_names((folder.empty() ? std::string() : folder + "/") + kClassNamesFile);
    const std::int64_t least = largest + 1;
    const auto named = static_cast<std::int64_t>(info_.classes.size());
    if (named >= least && (options.classes == 0 || named == options.classes)) return;
    info_.classes = numbered_classes(options.classes != 0 ? options.classes : least);
  }

  /// Rejects more classes by folder than are set.
  void check_classes(const DataOptions& options) const {
    const auto count = static_cast<int>(info_.classes.size());
    if (options.classes == 0 || count <= options.classes) return;
    throw DataError(fmt::format("{}: {} classes where {} are set; '{}' is the first too many",
                                info_.path, count, options.classes,
                                info_.classes[static_cast<std::size_t>(options.classes)]),
                    fmt::format("set model.classes={}", count));
  }

  /// Smallest raw image that is mapped: copying a smaller one takes less than two system calls.
  static constexpr std::uint32_t kMappedFrom = 64 << 10;

  mutable std::atomic<Content> content_{Content::unknown};
  const WantedMembers wanted_;
  KeptOpen kept_;
  std::vector<Shard> shards_;
  std::vector<Entry> samples_;                 ///< empty: looked up in `Shard::records`
  std::vector<std::int32_t> class_of_folder_;  ///< with records of samples without labels
  std::vector<TarSurroundings> around_;        ///< of `samples_`, if members are wanted
  SeenMembers seen_;
};

}  // namespace

std::unique_ptr<Reader> open_tar_files(const DataOptions& options,
                                       const std::vector<std::string>& files,
                                       const std::string& folder) {
  return std::make_unique<TarReader>(options, TarFiles{files, folder, true}, kMaxListed);
}

std::unique_ptr<Reader> open_tar(const DataOptions& options, std::uint64_t max_listed) {
  if (options.path.empty())
    throw DataError("data.path is empty",
                    "data.path=FILE.tar, a folder of *.tar, or 'shard-{000..003}.tar'");
  return std::make_unique<TarReader>(options, find_tars(options.path, options.split), max_listed);
}

}  // namespace millrace::pipeline
