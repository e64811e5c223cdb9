// Cuts splits into shards, writes and verifies them, and moves them into place.
#include "tools/data/pack.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "millrace/error.h"
#include "millrace/reader.h"
#include "pipeline/readers/fingerprint.h"
#include "pipeline/readers/labels.h"
#include "pipeline/readers/split.h"
#include "pipeline/readers/tar.h"
#include "pipeline/readers/tar_files.h"
#include "tools/data/detect.h"
#include "tools/data/output_file.h"
#include "tools/data/tar_writer.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kShardBytes = 1'000'000'000;

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
  std::vector<std::string> names;     ///< names of its archives, without the folder
  std::vector<std::uint64_t> starts;  ///< index of each archive's first sample, and the end
};

const char* ending_of(std::span<const std::uint8_t> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("\xff\xd8")) return "jpg";
  if (text.starts_with("\x89PNG")) return "png";
  if (text.starts_with("BM")) return "bmp";
  if (text.starts_with("RIFF") && text.substr(0, 12).ends_with("WEBP")) return "webp";
  if (text.starts_with("II*") || text.starts_with("MM")) return "tif";
  return nullptr;
}

std::unique_ptr<Reader> open_source(const PackOptions& options, const std::string& split) {
  DataOptions data;
  data.reader = options.reader.empty() ? detect_reader(options.source) : options.reader;
  data.path = options.source;
  data.split = split;
  auto reader = open_reader(data);
  if (!reader->info().encoded)
    throw UsageError(
        fmt::format("{} holds pixels, not encoded images (reader {})", options.source, data.reader),
        "pack takes image folders, archives and manifests");
  return reader;
}

/// Returns where each shard begins: the requested number of shards of equal counts, or as many as
/// the size limit requires.
std::vector<std::uint64_t> cut(const PackOptions& options, const Reader& source) {
  const std::uint64_t count = source.info().count;
  std::vector<std::uint64_t> starts;
  if (options.shards > 0) {
    const std::uint64_t shards = std::min(options.shards, count);
    for (std::uint64_t i = 0; i < shards; ++i) starts.push_back(i * count / shards);
  } else {
    const std::uint64_t most = options.shard_bytes > 0 ? options.shard_bytes : kShardBytes;
    Buffer scratch;
    std::uint64_t size = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      Location location;
      const std::uint64_t bytes =
          source.locate(i, location) ? location.size : source.read(i, scratch).bytes.size();
      const std::uint64_t sample = TarWriter::member_size(bytes) + TarWriter::member_size(1);
      if (i == 0 || size + sample > most) {
        starts.push_back(i);
        size = 0;
      }
      size += sample;
    }
  }
  starts.push_back(count);
  return starts;
}

/// Contents as written or as read back: labels, sizes and bytes in order.
class Contents {
 public:
  void add(const Sample& sample) {
    sum_.add(static_cast<std::uint64_t>(sample.label));
    sum_.add(sample.bytes.size());
    sum_.add(sample.bytes);
  }
  std::uint64_t value() const { return sum_.value(); }

 private:
  pipeline::Fingerprint sum_;
};

class Packer {
 public:
  explicit Packer(const PackOptions& options) : options_(options) {
    single_ = options.target.ends_with(".tar");
    folder_ = single_ ? fs::path(options.target).parent_path() : fs::path(options.target);
    if (folder_.empty()) folder_ = ".";
    if (options.target.empty())
      throw UsageError("no target given", "name one: millrace data pack SRC DIR");
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
    for (const Job& job : jobs_) {
      const std::uint64_t written = write(job, staging);
      verify(job, staging, written);
    }
    remove_stale();
    for (const Job& job : jobs_) packed.push_back(publish(job, staging));
    if (!class_names_.empty()) move(staging, pipeline::kClassNamesFile);
    return packed;
  }

 private:
  void plan() {
    std::optional<pipeline::MissingSplit> missing;
    for (const std::string& split :
         single_ ? std::vector{options_.split} : std::vector<std::string>{"train", "test"}) {
      try {
        jobs_.push_back({open_source(options_, split), {}, {}});
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
    for (const Job& job : jobs_) total_ += 2 * job.source->info().count;
  }

  static std::vector<std::string> numbers(const std::vector<std::string>& classes) {
    return pipeline::numbered_classes(static_cast<std::int64_t>(classes.size()));
  }

  void name_shards(Job& job) {
    if (!single_) {
      job.starts = cut(options_, *job.source);
      for (std::size_t i = 0; i + 1 < job.starts.size(); ++i)
        job.names.push_back(fmt::format("{}-{:06}.tar", job.source->info().split, i));
      return;
    }
    const std::string pattern = fs::path(options_.target).filename();
    job.names = pipeline::expand_braces(pattern);
    if (options_.shards > 0 && options_.shards != job.names.size())
      throw UsageError(
          fmt::format("--shards {} where {} names {}", options_.shards, pattern, job.names.size()),
          "write the numbers into the name, {000..003}, or give a folder");
    if (job.names.size() > job.source->info().count)
      throw UsageError(
          fmt::format("{} archives for {} samples", job.names.size(), job.source->info().count),
          "use fewer archives");
    PackOptions by_count = options_;
    by_count.shards = job.names.size();
    job.starts = cut(by_count, *job.source);
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

  std::uint64_t write(const Job& job, const Staging& staging) {
    Contents contents;
    Buffer scratch;
    for (std::size_t shard = 0; shard + 1 < job.starts.size(); ++shard) {
      TarWriter archive(staging.path(job.names[shard]));
      for (std::uint64_t index = job.starts[shard]; index < job.starts[shard + 1]; ++index) {
        const Sample sample = read(*job.source, index, scratch);
        const char* ending = ending_of(sample.bytes);
        if (ending == nullptr)
          throw DataError(
              fmt::format("{}: unknown image format", job.source->name(index)),
              "known formats are JPEG, PNG, BMP, WebP and TIFF; remove or convert the file");
        archive.add(fmt::format("{:09}.{}", index, ending), sample.bytes);
        const std::string label = std::to_string(sample.label);
        archive.add(fmt::format("{:09}.cls", index),
                    {reinterpret_cast<const std::uint8_t*>(label.data()), label.size()});
        contents.add(sample);
        step();
      }
      archive.finish();
    }
    return contents.value();
  }

  static Sample read(const Reader& reader, std::uint64_t index, Buffer& scratch) {
    try {
      return reader.read(index, scratch);
    } catch (const DataError& error) {
      throw DataError(reader.name(index) + ": " + error.what(), error.hint());
    }
  }

  void verify(const Job& job, const Staging& staging, std::uint64_t written) {
    std::vector<std::string> files;
    for (const std::string& name : job.names) files.push_back(staging.path(name));
    DataOptions data;
    data.path = staging.folder();
    data.split = job.source->info().split;
    const auto packed = pipeline::open_tar_files(data, files, staging.folder());
    Contents contents;
    Buffer scratch;
    for (std::uint64_t index = 0; index < packed->info().count; ++index) {
      contents.add(packed->read(index, scratch));
      step();
    }
    const bool named = class_names_.empty() || packed->info().classes == class_names_;
    if (packed->info().count != job.source->info().count || contents.value() != written || !named)
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
    PackedSplit packed{job.source->info().split, job.source->info().count, 0, {}};
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
      const bool ours =
          (name.starts_with("train-") || name.starts_with("test-")) && name.ends_with(".tar");
      if (ours || name == pipeline::kClassNamesFile) fs::remove(entry.path(), ignored);
    }
  }

  const PackOptions& options_;
  bool single_ = false;
  fs::path folder_;
  std::vector<Job> jobs_;
  std::vector<std::string> class_names_;
  std::uint64_t done_ = 0, total_ = 0;
};

}  // namespace

std::vector<PackedSplit> pack(const PackOptions& options) { return Packer(options).run(); }

}  // namespace millrace::tools
