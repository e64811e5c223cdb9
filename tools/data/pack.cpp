// Packs data sets into tar archives.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/text.h"
#include "millrace/error.h"
#include "millrace/reader.h"
#include "pipeline/decoders/image_files.h"
#include "pipeline/decoders/npy_image.h"
#include "pipeline/decoders/raw_image.h"
#include "pipeline/readers/data_set.h"
#include "pipeline/readers/listing.h"
#include "pipeline/readers/set_index.h"
#include "pipeline/readers/tar.h"
#include "tools/data/data.h"
#include "tools/data/tar_writer.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kShardBytes = 1'000'000'000;
/// Ending of a packed sample's mask.
constexpr const char* kMaskEnding = "seg.png";
/// Most images that are converted together, and bytes of them after which no further one is begun.
constexpr std::uint64_t kTogether = 512;
constexpr std::uint64_t kTogetherBytes = std::uint64_t{128} << 20;

/// Temporary folder inside the target's, removed with everything in it.
class Staging {
 public:
  explicit Staging(const fs::path& folder) : path_(folder / ".millrace-pack.partial") {
    std::error_code ignored;
    fs::remove_all(path_, ignored);  // left by an earlier run that was killed
    make_folder(path_);
  }
  ~Staging() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  std::string path(const std::string& name) const { return path_ / name; }
  const fs::path& folder() const { return path_; }

 private:
  fs::path path_;
};

/// A split being packed.
struct Job {
  std::unique_ptr<Reader> source;
  std::uint64_t count = 0;            ///< samples that are packed
  std::vector<std::string> names;     ///< names of its archives, without the folder
  std::vector<std::uint64_t> starts;  ///< index of each archive's first sample; empty: by size
};

std::unique_ptr<Reader> open_source(const PackOptions& options, const std::string& split) {
  DataOptions data;
  data.reader = options.reader.empty() ? detect_reader(options.source) : options.reader;
  data.path = options.source;
  data.split = split;
  data.members = options.members;
  data.masks = options.masks;
  data.arrays = options.arrays;
  auto reader = open_reader(data);
  if (!reader->info().encoded)
    throw UsageError(
        fmt::format("{} holds pixels, not encoded images (reader {})", options.source, data.reader),
        "pack takes image folders, archives and manifests");
  if (reader->annotations() != nullptr)
    throw UsageError(fmt::format("{} has boxes, which archives do not keep", options.source),
                     "train from the set as it is: data.reader=" + data.reader);
  return reader;
}

/// Returns where each of `shards` archives of equal counts begins, and the end.
std::vector<std::uint64_t> cut(std::uint64_t shards, std::uint64_t count) {
  shards = std::min(shards, count);
  std::vector<std::uint64_t> starts;
  for (std::uint64_t i = 0; i <= shards; ++i) starts.push_back(i * count / shards);
  return starts;
}

/// Contents as written or as read back: labels, sizes and bytes in order.
class Contents {
 public:
  void add(const Sample& sample) {
    sum_.add(static_cast<std::uint64_t>(sample.label));
    sum_.add(sample.bytes.size());
    sum_.add(sample.bytes);
    for (const Member& member : sample.members) {
      sum_.add(std::uint64_t{member.has_value()});
      if (!member) continue;
      sum_.add(member->size());
      sum_.add(*member);
    }
  }
  std::uint64_t value() const { return sum_.value(); }

 private:
  pipeline::Fingerprint sum_;
};

class Packer {
 public:
  explicit Packer(const PackOptions& options) : options_(options), endings_(options.members) {
    single_ = options.target.ends_with(".tar");
    folder_ = single_ ? fs::path(options.target).parent_path() : fs::path(options.target);
    if (folder_.empty()) folder_ = ".";
    if (options.target.empty())
      throw UsageError("no target given", "name one: millrace data pack SRC DIR");
    for (const std::string& name : options.members)
      if (name == "cls" ||
          (name.find('.') == name.npos && pipeline::has_image_ending("image." + name)))
        throw UsageError(
            fmt::format("--members {0}: pack writes each sample's image and .cls itself", name),
            "leave it out");
    if (!options.masks.empty()) add_masks();
    plan();
    check_target();
  }

  std::vector<PackedSplit> run() {
    make_folder(folder_);
    const Staging staging(folder_);
    std::vector<PackedSplit> packed;
    if (!class_names_.empty()) {
      std::string text;
      for (const std::string& name : class_names_) text += name + "\n";
      write_file(staging.path(pipeline::kClassNamesFile),
                 {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
    }
    for (Job& job : jobs_) {
      const std::uint64_t written = write(job, staging);
      verify(job, staging, written);
    }
    remove_stale();
    for (const Job& job : jobs_) packed.push_back(publish(job, staging));
    if (!class_names_.empty()) move(staging, pipeline::kClassNamesFile);
    make_indexes(options_.target, {}, options_.indexing);
    if (single_) refresh_set_index(folder_.string(), packed.front().files, options_.indexing);
    return packed;
  }

 private:
  void add_masks() {
    if (options_.shrink.resizes())
      throw UsageError("--masks with --short-side or --max-side: masks keep their size",
                       "pack the images as they are");
    if (std::ranges::count(endings_, kMaskEnding) > 0)
      throw UsageError(fmt::format("--members {} with --masks, which writes it", kMaskEnding),
                       "leave it out of --members");
    endings_.emplace_back(kMaskEnding);
  }

  void plan() {
    std::optional<pipeline::MissingSplit> missing;
    for (const std::string& split :
         single_ ? std::vector{options_.split} : std::vector<std::string>{"train", "test"}) {
      try {
        jobs_.push_back({open_source(options_, split), 0, {}, {}});
        Job& job = jobs_.back();
        job.count = job.source->info().count;
        if (options_.most > 0) job.count = std::min(job.count, options_.most);
      } catch (const pipeline::MissingSplit& error) {
        missing = error;
      }
    }
    if (jobs_.empty()) throw *missing;
    const std::vector<std::string>& classes = jobs_.front().source->info().classes;
    for (const Job& job : jobs_)
      if (job.source->info().classes != classes && classes != numbers(classes))
        throw DataError(
            fmt::format("{}: train and test have different classes", options_.source),
            "labels are indices into the list of classes, so both splits need the same list");
    if (classes != numbers(classes)) class_names_ = classes;
    for (const std::string& name : class_names_)
      if (!pipeline::is_class_name(name))
        throw DataError(
            fmt::format("{}: the class name '{}' does not fit on a line of {}", options_.source,
                        base::printable(name), pipeline::kClassNamesFile),
            "rename the class: names may not be empty, hold a line break or end in a carriage "
            "return");
    for (Job& job : jobs_) name_shards(job);
    for (const Job& job : jobs_) total_ += 2 * job.count;
  }

  static std::vector<std::string> numbers(const std::vector<std::string>& classes) {
    return pipeline::numbered_classes(static_cast<std::int64_t>(classes.size()));
  }

  void name_shards(Job& job) const {
    const std::uint64_t count = job.count;
    if (!single_) {
      if (options_.shards == 0) return;  // write() cuts by size
      job.starts = cut(options_.shards, count);
      for (std::size_t i = 0; i + 1 < job.starts.size(); ++i) job.names.push_back(name_of(job, i));
      return;
    }
    const std::string pattern = fs::path(options_.target).filename();
    job.names = pipeline::expand_braces(pattern);
    if (options_.shards > 0 && options_.shards != job.names.size())
      throw UsageError(
          fmt::format("--shards {} where {} names {}", options_.shards, pattern, job.names.size()),
          "write the numbers into the name, {000..003}, or give a folder");
    if (job.names.size() > count)
      throw UsageError(fmt::format("{} archives for {} samples", job.names.size(), count),
                       "use fewer archives");
    job.starts = cut(job.names.size(), count);
  }

  static std::string name_of(const Job& job, std::size_t shard) {
    return fmt::format("{}-{:06}.tar", job.source->info().split, shard);
  }

  void check_target() const {
    std::error_code error;
    if (fs::exists(folder_, error) && !fs::is_directory(folder_, error))
      throw RunError(fmt::format("{}: already exists and is not a folder", folder_.string()),
                     "choose another name");
    if (options_.force || !fs::exists(folder_, error)) return;
    const auto in_the_way = [&](const std::string& name) {
      throw RunError(fmt::format("{}: already holds other files: {}", folder_.string(), name),
                     "choose an empty or new folder, or use this one with --force");
    };
    if (single_) {
      for (const std::string& name : jobs_.front().names)
        if (fs::exists(folder_ / name, error)) in_the_way(name);
      // One file names the classes of all archives in a folder.
      const std::vector<std::string> named =
          pipeline::read_class_names(folder_ / pipeline::kClassNamesFile);
      if (!named.empty() && named != class_names_)
        in_the_way(std::string(pipeline::kClassNamesFile) + " with other names");
      return;
    }
    for (const auto& entry : fs::directory_iterator(folder_, error))
      if (const std::string name = entry.path().filename(); !name.starts_with('.'))
        in_the_way(name);
  }

  void step() {
    ++done_;
    if (options_.progress) options_.progress(done_, total_);
  }

  /// Writes a split's archives, and cuts them by size unless their number is given.
  std::uint64_t write(Job& job, const Staging& staging) {
    const bool by_size = job.names.empty();
    const std::uint64_t most = options_.shard_bytes > 0 ? options_.shard_bytes : kShardBytes;
    const std::uint64_t count = job.count;
    Contents contents;
    std::optional<TarWriter> archive;
    std::size_t shard = 0;  // number of archives begun
    const std::uint64_t together = options_.shrink.wanted() ? kTogether : 1;
    for (std::uint64_t first = 0, loaded = 0; first < count; first += loaded) {
      const std::vector<Image> images = load(job, first, std::min(together, count - first));
      loaded = images.size();
      for (const Image& image : images) {
        const std::uint64_t index = first + static_cast<std::uint64_t>(&image - images.data());
        std::uint64_t size = TarWriter::member_size(image.bytes.size()) + TarWriter::member_size(1);
        for (const Member& member : image.members)
          if (member) size += TarWriter::member_size(member->size());
        if (!archive || (by_size ? archive->size() + size > most : index == job.starts[shard])) {
          if (archive) archive->finish();
          if (by_size) job.names.push_back(name_of(job, shard));
          archive.emplace(staging.path(job.names[shard++]));
        }
        add(*archive, job, index, image);
        contents.add({.bytes = image.bytes, .label = image.label, .members = image.members});
        step();
      }
    }
    if (archive) archive->finish();
    return contents.value();
  }

  /// A sample as it is packed.
  struct Image {
    std::vector<std::uint8_t> bytes;
    std::int64_t label = 0;
    std::vector<std::uint8_t> member_bytes;
    std::vector<Member> members;  ///< in member_bytes
  };

  /// Copies a sample's members.
  static void keep_members(const std::vector<Member>& members, Image& image) {
    std::size_t size = 0;
    for (const Member& member : members) size += member ? member->size() : 0;
    image.member_bytes.reserve(size);  // views into it are kept
    for (const Member& member : members) {
      image.members.emplace_back();
      if (!member) continue;
      const std::size_t at = image.member_bytes.size();
      image.member_bytes.insert(image.member_bytes.end(), member->begin(), member->end());
      image.members.back() = std::span(image.member_bytes).subspan(at);
    }
  }

  /// Reads samples, and converts them on all cores. Returns the first ones only if they are large.
  std::vector<Image> load(const Job& job, std::uint64_t first, std::uint64_t count) const {
    const Reader& source = *job.source;
    std::vector<Image> images(count);
    std::vector<char> loaded(count);
    std::atomic<std::uint64_t> bytes{0};
    const auto load_some = [&](std::uint64_t begin, std::uint64_t end) {
      if (bytes.load() > kTogetherBytes) return;
      Buffer scratch, mask_scratch;
      Shrinker shrinker(options_.shrink);
      for (std::uint64_t i = begin; i < end; ++i) try {
          const Sample sample = source.read(source_index(job, first + i), scratch);
          images[i].label = sample.label;
          std::vector<Member> members(sample.members.begin(), sample.members.end());
          if (source.info().masks)
            members.emplace_back(sample.mask.empty()
                                     ? source.mask(source_index(job, first + i), mask_scratch)
                                     : sample.mask);
          keep_members(members, images[i]);
          if (options_.shrink.wanted())
            images[i].bytes = shrinker.run(sample.bytes);
          else if (pipeline::is_npy(sample.bytes))  // in archives, .npy is no image's ending
            images[i].bytes = pipeline::to_raw(pipeline::parse_npy(sample.bytes));
          else
            images[i].bytes.assign(sample.bytes.begin(), sample.bytes.end());
          bytes += images[i].bytes.size() + images[i].member_bytes.size();
          loaded[i] = 1;
        } catch (const DataError& error) {
          throw DataError(source.name(source_index(job, first + i)) + ": " + error.what(),
                          error.hint());
        }
    };
    if (options_.shrink.wanted())
      parallel_for(count, 1, 0, {}, load_some);
    else
      load_some(0, count);
    // A thread may leave out a piece after another one has loaded a later one, which is then loaded
    // again. The first piece is never left out.
    images.resize(
        static_cast<std::size_t>(std::find(loaded.begin(), loaded.end(), 0) - loaded.begin()));
    return images;
  }

  /// Returns the number in the source of the sample that becomes number `index`.
  static std::uint64_t source_index(const Job& job, std::uint64_t index) {
    const std::uint64_t all = job.source->info().count;
    return job.count == all ? index : index * all / job.count;
  }

  void add(TarWriter& archive, const Job& job, std::uint64_t index, const Image& image) const {
    const std::string ending = pipeline::image_ending(image.bytes);
    if (ending.empty())
      throw DataError(
          fmt::format("{}: unknown image format", job.source->name(source_index(job, index))),
          fmt::format("known formats are {}; remove or convert the file",
                      pipeline::image_format_names()));
    archive.add(fmt::format("{:09}.{}", index, ending), image.bytes);
    const std::string label = std::to_string(image.label);
    archive.add(fmt::format("{:09}.cls", index),
                {reinterpret_cast<const std::uint8_t*>(label.data()), label.size()});
    for (std::size_t name = 0; name < image.members.size(); ++name)
      if (const Member& member = image.members[name])
        archive.add(fmt::format("{:09}.{}", index, endings_[name]), *member);
  }

  void verify(const Job& job, const Staging& staging, std::uint64_t written) {
    std::vector<std::string> files;
    for (const std::string& name : job.names) files.push_back(staging.path(name));
    DataOptions data;
    data.path = staging.folder();
    data.split = job.source->info().split;
    data.index = IndexUse::off;
    data.members = endings_;
    const auto packed = pipeline::open_tar_files(data, files, staging.folder());
    Contents contents;
    Buffer scratch;
    for (std::uint64_t index = 0; index < packed->info().count; ++index) {
      contents.add(packed->read(index, scratch));
      step();
    }
    const bool named = class_names_.empty() || packed->info().classes == class_names_;
    if (packed->info().count != job.count || contents.value() != written || !named)
      throw RunError(fmt::format("{}: the archives differ from what was written when read back",
                                 folder_.string()),
                     "check the disk and the memory of this machine");
  }

  void move(const Staging& staging, const std::string& name) const {
    std::error_code error;
    fs::rename(staging.folder() / name, folder_ / name, error);
    if (error)
      throw RunError(
          fmt::format("{}: cannot be written: {}", (folder_ / name).string(), error.message()),
          "check the folder's permissions");
  }

  PackedSplit publish(const Job& job, const Staging& staging) const {
    PackedSplit packed{job.source->info().split, job.count, 0, {}};
    for (const std::string& name : job.names) {
      move(staging, name);
      packed.files.push_back(folder_ / name);
      std::error_code ignored;
      packed.bytes += fs::file_size(folder_ / name, ignored);
    }
    return packed;
  }

  /// Removes shards of an earlier, larger set, which would be read with the new ones.
  void remove_stale() const {
    if (single_) return;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
      const std::string name = entry.path().filename();
      const bool ours = (name.starts_with("train-") || name.starts_with("test-")) &&
                        (name.ends_with(".tar") || name.ends_with(pipeline::index_path(".tar")));
      if (ours || name == pipeline::kClassNamesFile || name == pipeline::kSetIndexFile)
        fs::remove(entry.path(), ignored);
    }
  }

  const PackOptions& options_;
  std::vector<std::string> endings_;  ///< of the members beside images and labels
  bool single_ = false;
  fs::path folder_;
  std::vector<Job> jobs_;
  std::vector<std::string> class_names_;
  std::uint64_t done_ = 0, total_ = 0;
};

}  // namespace

std::vector<PackedSplit> pack(const PackOptions& options) { return Packer(options).run(); }

}  // namespace millrace::tools
