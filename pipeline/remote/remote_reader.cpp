// Reads samples of remote archives.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <limits>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "millrace/error.h"
#include "pipeline/readers/data_set.h"
#include "pipeline/readers/kept_open.h"
#include "pipeline/readers/mapped_file.h"
#include "pipeline/readers/tar.h"
#include "pipeline/readers/tar_index.h"
#include "pipeline/remote/read_ahead.h"
#include "pipeline/remote/remote_set.h"

namespace millrace::pipeline {
namespace {

/// Value of Part::pins while the archive is not open.
constexpr std::int64_t kAway = std::numeric_limits<std::int64_t>::min();

struct Entry {
  std::uint64_t data;
  std::uint32_t size;
  std::uint32_t back;
  std::int32_t label;
};

/// One archive. A read pins it; an archive without pins may be closed, which lets the cache evict
/// it. Its list of samples stays. With ranges it has no file and stays open.
struct Part {
  RemoteShard shard;
  std::uint64_t first = 0;  ///< number of its first sample in the set
  std::uint64_t count = 0;  ///< samples of the split
  std::vector<std::int32_t> class_of_folder;
  std::mutex opening;
  std::atomic<std::int64_t> pins{kAway};
  std::atomic<bool> used{false};      ///< since let_go() last came by
  std::atomic<bool> expected{false};  ///< was to be fetched ahead since it was closed
  // Guarded by `opening` while pins is kAway, constant otherwise.
  base::Descriptor file;
  bool counted = false;        ///< `file` is counted in RemoteReader::kept_
  std::vector<Entry> entries;  ///< filled when the archive is first opened
  double open_s = 0;           ///< duration of the last opening, and what it was spent on
  FetchTimes spent{};
  // Used when samples are read by ranges.
  std::mutex identity;
  std::string etag;  ///< guarded by identity; strong one of the first range, or empty
};

std::int32_t largest_label(const TarIndex& index) {
  std::int32_t largest = -1;
  for (const TarIndex::Entry& entry : index.samples) largest = std::max(largest, entry.label);
  return largest;
}

class RemoteReader;

/// All readers of this process: one that needs room closes archives of the others too.
class Readers {
 public:
  static Readers& all() {
    static Readers* const readers = new Readers;  // a thread left behind may use it at the exit
    return *readers;
  }
  void add(const RemoteReader* reader) {
    const std::lock_guard lock(mutex_);
    readers_.push_back(reader);
  }
  void remove(const RemoteReader* reader) {
    const std::lock_guard lock(mutex_);
    std::erase(readers_, reader);
  }
  bool let_go();

 private:
  std::mutex mutex_;
  std::vector<const RemoteReader*> readers_;
};

class RemoteReader final : public Reader {
 public:
  explicit RemoteReader(const DataOptions& options)
      : set_(options), ranges_(reads_ranges(options)), checked_(options.index == IndexUse::off) {
    info_.reader = "tar";
    info_.path = redacted(options.path);
    info_.split = options.split;
    info_.encoded = true;
    info_.requested = ranges_;
    for (const RemoteShard& shard : set_.shards()) {
      parts_.push_back(std::make_unique<Part>());
      parts_.back()->shard = shard;
    }
    try {
      list_unindexed();
      by_label_ = has_labels();
      choose(options);
      count_classes(options);
    } catch (const FetchError& error) {
      rethrow_at_open(error);
    }
    if (!ranges_ && options.remote.cache_bytes > 0 && options.remote.reach > 0)
      check_room(options.remote);
    look_ahead(options.remote);
    Readers::all().add(this);
  }
  ~RemoteReader() override {
    set_.close();
    ahead_.reset();
    Readers::all().remove(this);
  }
  RemoteReader(const RemoteReader&) = delete;
  RemoteReader& operator=(const RemoteReader&) = delete;

  Sample read(std::uint64_t index, Buffer& scratch) const override {
    const Pin pin(*this, part_of(index));
    const Part& part = pin.part();
    const Entry& sample = part.entries[index - part.first];
    if (sample.size == base::kTooLong) {
      Location location = location_of(part, sample);
      return base::read_located(location, part.file.get(), scratch);
    }
    std::uint8_t* bytes = scratch.reserve(sample.size);
    if (ranges_) {
      fetch_range(pin.part(), sample.data, sample.size, bytes);
      return {{bytes, sample.size}, sample.label};
    }
    if (base::read_at(part.file.get(), bytes, sample.size, sample.data,
                      part.shard.url.path.c_str()) != sample.size)
      throw RunError(
          fmt::format("{}: the copy in data.remote.cache was cut short", part.shard.url.text()),
          "leave the cache alone while it is used; removing it is safe between runs");
    return {{bytes, sample.size}, sample.label};
  }

  std::string name(std::uint64_t index) const override {
    Part& part = part_of(index);
    const std::string shown = part.shard.url.text();
    try {
      const Pin pin(*this, part);
      const Entry& sample = part.entries[index - part.first];
      return fmt::format("{} member {}", shown, base::printable(member_name(part, sample)));
    } catch (const std::exception&) {  // a name for a message must not fail
      return fmt::format("{} sample {}", shown, index - part.first);
    }
  }

  bool locate(std::uint64_t index, Location& location) const override {
    if (ranges_) return false;
    const Pin pin(*this, part_of(index));
    location = location_of(pin.part(), pin.part().entries[index - pin.part().first]);
    return true;
  }

  std::uint64_t lookahead() const override { return lookahead_; }

  void expect(std::uint64_t index) const override {
    Part& part = part_of(index);
    if (part.pins.load(std::memory_order_relaxed) != kAway || part.expected.exchange(true)) return;
    if (ahead_ != nullptr) ahead_->add(index);
  }

  /// Closes an archive that nobody reads, one that was not used lately if there is one.
  bool let_go() const {
    if (ranges_) return false;
    const std::lock_guard lock(closing_);
    for (std::size_t step = 0; step < 2 * parts_.size(); ++step) {
      Part& part = *parts_[hand_++ % parts_.size()];
      // The archive that this thread is opening is away, so its lock is not tried.
      if (part.pins.load(std::memory_order_relaxed) != 0) continue;
      if (step < parts_.size() && part.used.exchange(false, std::memory_order_relaxed)) continue;
      const std::unique_lock opening(part.opening, std::try_to_lock);
      std::int64_t none = 0;
      if (!opening || !part.pins.compare_exchange_strong(none, kAway, std::memory_order_acq_rel))
        continue;
      part.file.close();
      if (std::exchange(part.counted, false)) kept_.remove();
      part.expected.store(false);
      return true;
    }
    return false;
  }

 private:
  /// Keeps an archive open.
  class Pin {
   public:
    Pin(const RemoteReader& reader, Part& part) : part_(part) {
      if (!try_pin(part)) reader.open(part);
      if (!part.used.load(std::memory_order_relaxed))
        part.used.store(true, std::memory_order_relaxed);
    }
    ~Pin() { part_.pins.fetch_sub(1, std::memory_order_release); }
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;
    Part& part() const { return part_; }

   private:
    Part& part_;
  };

  /// Returns whether samples are read by ranges. Throws if that is wanted and impossible.
  bool reads_ranges(const DataOptions& options) const {
    const RemoteOptions& remote = options.remote;
    const auto& shards = set_.shards();
    const bool can = options.index != IndexUse::off &&
                     std::all_of(shards.begin(), shards.end(), [](const RemoteShard& shard) {
                       return shard.indexed && shard.listed.index_size > 0;
                     });
    if (remote.fetch == RemoteFetch::ranges && !can)
      throw UsageError(
          fmt::format("{}: data.remote.fetch=ranges needs the archives' indexes",
                      redacted(options.path)),
          options.index == IndexUse::off
              ? "leave data.index=off out"
              : "make them where the archives are (millrace data index FOLDER), and upload "
                "set.index and all *.tar.index");
    if (remote.fetch != RemoteFetch::automatic) return remote.fetch == RemoteFetch::ranges;
    const std::uint64_t bytes = std::accumulate(
        shards.begin(), shards.end(), std::uint64_t{0},
        [](std::uint64_t sum, const RemoteShard& shard) { return sum + shard.listed.size; });
    return can && remote.cache_bytes > 0 && bytes > remote.cache_bytes &&
           remote.reach == std::numeric_limits<std::uint64_t>::max();
  }

  /// Fetches a part of an archive, which must have the ETag of the parts before.
  void fetch_range(Part& part, std::uint64_t first, std::uint64_t count, std::uint8_t* out) const {
    if (count == 0) return;
    FetchPart wanted{.first = first, .count = count};
    {
      const std::lock_guard lock(part.identity);
      wanted.etag = part.etag;
    }
    const FetchTimes before = fetch_times_of_thread();
    const HttpHeader header = set_.fetch_part(part.shard, wanted, out);
    count_read(fetch_times_of_thread() - before);
    const std::lock_guard lock(part.identity);
    if (part.etag.empty() && header.has_strong_etag()) part.etag = header.etag;
    if (part.etag.empty() || part.etag == header.etag) return;
    // Another thread's first part came at the same time, from another version.
    throw FetchError(
        FetchError::Kind::wrong,
        fmt::format("{}: the object changed while it was fetched", part.shard.url.text()),
        "leave the set alone while it is used, and start again");
  }

  std::string member_name(Part& part, const Entry& sample) const {
    const std::string shown = part.shard.url.text();
    if (ranges_) {
      std::vector<std::uint8_t> headers(sample.back);
      fetch_range(part, sample.data - sample.back, sample.back, headers.data());
      // Padding follows the sample in the archive.
      return tar_name(shown, headers,
                      part.shard.listed.size - std::min(part.shard.listed.size, sample.data));
    }
    const MappedFile mapped = MappedFile::map(set_.path_of(part.shard));
    return tar_name(shown, mapped.bytes(), {sample.data, 0, sample.back, 0, 0});
  }

  static bool try_pin(Part& part) {
    std::int64_t pins = part.pins.load(std::memory_order_relaxed);
    while (pins >= 0)
      if (part.pins.compare_exchange_weak(pins, pins + 1, std::memory_order_acquire)) return true;
    return false;
  }

  Part& part_of(std::uint64_t index) const {
    const auto behind = std::upper_bound(
        parts_.begin(), parts_.end(), index,
        [](std::uint64_t wanted, const auto& part) { return wanted < part->first; });
    return **std::prev(behind);
  }

  Location location_of(const Part& part, const Entry& sample) const {
    Location location;
    location.offset = sample.data;
    location.size = sample.size;
    location.label = sample.label;
    base::set_path(location, set_.path_of(part.shard));
    return location;
  }

  /// Opens an archive and pins it, once for all threads that ask.
  void open(Part& part) const {
    const double begin = now_s();
    const std::lock_guard lock(part.opening);
    if (try_pin(part)) return count_wait(part, now_s() - begin);
    const double locked = now_s();
    const FetchTimes before = fetch_times_of_thread();
    if (ranges_) {
      list_by_index(part);
    } else {
      while (!kept_.room() && let_go()) {
      }
      adopt_file(part, set_.fetch(
                           part.shard, [this] { return let_go() || Readers::all().let_go(); },
                           checked_ && part.entries.empty()));
    }
    part.spent = fetch_times_of_thread() - before;
    part.open_s = now_s() - locked;
    count_read(part.spent);
    part.pins.store(1, std::memory_order_release);
  }

  /// Opens an archive before it is read. Leaves failures to the read.
  void open_ahead(Part& part) const {
    const std::unique_lock opening(part.opening, std::try_to_lock);
    if (!opening || part.pins.load(std::memory_order_relaxed) != kAway) return;
    const double begin = now_s();
    const FetchTimes before = fetch_times_of_thread();
    try {
      while (!kept_.room() && let_go()) {
      }
      base::Descriptor file = set_.fetch_ahead(part.shard);
      if (!file) return;
      adopt_file(part, std::move(file));
    } catch (const std::exception&) {
      part.file.close();
      return;
    }
    part.spent = fetch_times_of_thread() - before;
    part.open_s = now_s() - begin;
    part.used.store(true, std::memory_order_relaxed);
    part.pins.store(0, std::memory_order_release);
  }

  void adopt_file(Part& part, base::Descriptor file) const {
    part.file = std::move(file);
    if (part.entries.empty()) list(part);
    part.counted = kept_.add();
  }

  static double now_s() { return static_cast<double>(base::Clock::steady_ns()) * 1e-9; }

  /// Counts the wait for another thread's opening like that one's own time.
  static void count_wait(const Part& part, double waited_s) {
    if (part.open_s <= 0) return;
    const double share = std::min(1.0, waited_s / part.open_s);
    count_read({share * part.spent.first_byte_s, share * part.spent.transfer_s,
                share * part.spent.retry_s});
  }

  /// Walks an archive of the cache, and keeps the samples of the split.
  void list(Part& part) const {
    const MappedFile mapped = MappedFile::map(set_.path_of(part.shard));
    IndexTarOptions walk;
    walk.passed = [&] { mapped.let_go(); };
    TarIndex index;
    try {
      index = index_tar(part.shard.url.text(), mapped.bytes(), walk);
    } catch (const DataError& error) {  // not the fault of one sample
      throw FetchError(FetchError::Kind::wrong, error.what(), error.hint());
    }
    check_listed(part, index);
    adopt(part, index);
  }

  /// Lists the samples of an archive by its index, which is fetched.
  void list_by_index(Part& part) const {
    const std::string file = part.shard.url.text() + std::string(kShardIndexEnding);
    const std::string text = set_.fetch_index(part.shard);
    const char* const hint =
        "make the set's indexes again (millrace data index FOLDER), upload set.index and all "
        "*.tar.index, or set data.remote.fetch=shards";
    ShardIndex index;
    try {
      index = parse_shard_index(file,
                                {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
    } catch (const DataError& error) {
      throw FetchError(FetchError::Kind::wrong, error.what(), hint);
    }
    if (index.sha256 != part.shard.listed.sha256)
      throw FetchError(FetchError::Kind::wrong,
                       fmt::format("{}: belongs to another archive than set.index lists", file),
                       hint);
    check_listed(part, index.tar);
    adopt(part, index.tar);
  }

  static void check_listed(const Part& part, const TarIndex& index) {
    const SetIndex::Shard& listed = part.shard.listed;
    if (index.samples.size() != listed.samples || index.fingerprint != listed.fingerprint ||
        index.folders != listed.folders || index.unlabelled != listed.unlabelled ||
        index.unlabelled_beside != listed.unlabelled_beside ||
        largest_label(index) != listed.largest_label)
      throw FetchError(
          FetchError::Kind::wrong,
          fmt::format("{}: holds {} samples, and they or their labels are not the {} that "
                      "set.index lists",
                      part.shard.url.text(), index.samples.size(), listed.samples),
          "make the set's index again with the plugins.path of the run: millrace data index "
          "FOLDER");
  }

  void adopt(Part& part, const TarIndex& index) const {
    part.entries.reserve(part.count);
    for (const TarIndex::Entry& entry : index.samples) {
      const std::int32_t of_folder = part.class_of_folder[entry.folder];
      if (of_folder == TarClasses::kOtherSplit) continue;
      part.entries.push_back(
          {entry.data, entry.size, entry.back, by_label_ ? entry.label : of_folder});
    }
  }

  /// Fetches the archives that no set.index describes, and describes them.
  void list_unindexed() {
    for (const auto& part : parts_) {
      if (part->shard.indexed) continue;
      const base::Descriptor file = set_.fetch(
          part->shard, [] { return Readers::all().let_go(); }, false);
      const MappedFile mapped = MappedFile::map(set_.path_of(part->shard));
      const TarIndex index = index_tar(part->shard.url.text(), mapped.bytes());
      SetIndex::Shard& listed = part->shard.listed;
      listed.samples = index.samples.size();
      listed.unlabelled = index.unlabelled;
      listed.unlabelled_beside = index.unlabelled_beside;
      listed.fingerprint = index.fingerprint;
      listed.folders = index.folders;
      listed.largest_label = largest_label(index);
      for (const TarIndex::Entry& entry : index.samples) listed.image_bytes += entry.size;
    }
  }

  /// Returns whether the samples have labels of their own. Throws unless all or none have.
  bool has_labels() const {
    std::uint64_t total = 0, unlabelled = 0, beside = 0;
    for (const auto& part : parts_) {
      total += part->shard.listed.samples;
      unlabelled += part->shard.listed.unlabelled;
      beside += part->shard.listed.unlabelled_beside;
    }
    if (unlabelled == 0) return true;
    if (unlabelled == total && beside == 0) return false;
    for (const auto& part : parts_)
      if (part->shard.listed.unlabelled > 0)
        throw DataError(fmt::format("{}: {} of its {} samples have no label ({} of {} in the set)",
                                    part->shard.url.text(), part->shard.listed.unlabelled,
                                    part->shard.listed.samples, unlabelled, total),
                        "put a .cls with its class's number, or a .json with \"label\", beside "
                        "each");
    return false;
  }

  /// Selects the samples of the split, and numbers them.
  void choose(const DataOptions& options) {
    std::vector<std::string> folders;
    Fingerprint fingerprint;
    for (const auto& part : parts_) {
      const SetIndex::Shard& listed = part->shard.listed;
      folders.insert(folders.end(), listed.folders.begin(), listed.folders.end());
      fingerprint.add(listed.fingerprint);
      info_.archives.push_back({std::filesystem::path(listed.name).filename(), listed.fingerprint,
                                listed.sha256, set_.path_of(part->shard), part->shard.url.text(),
                                part->shard.version});
    }
    info_.fingerprint = fingerprint.value();
    TarClasses classes = classify_folders(
        folders, options.split, set_.of_split(), by_label_,
        std::filesystem::path(parts_.front()->shard.listed.name).stem(), info_.path);
    info_.classes = std::move(classes.classes);
    std::size_t folder = 0;
    for (const auto& part : parts_) {
      const std::size_t count = part->shard.listed.folders.size();
      const auto begin = classes.of_folder.begin() + static_cast<std::ptrdiff_t>(folder);
      part->class_of_folder.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
      folder += count;
      number(*part);
    }
    std::erase_if(parts_, [](const auto& part) { return part->count == 0; });
    info_.count =
        std::accumulate(parts_.begin(), parts_.end(), std::uint64_t{0},
                        [](std::uint64_t sum, const auto& part) { return sum + part->count; });
    std::uint64_t first = 0;
    for (const auto& part : parts_) part->first = std::exchange(first, first + part->count);
  }

  /// Counts the samples of the split in one archive, which has to be fetched if it holds several
  /// splits.
  void number(Part& part) {
    const auto other = std::count(part.class_of_folder.begin(), part.class_of_folder.end(),
                                  TarClasses::kOtherSplit);
    if (other == std::ssize(part.class_of_folder)) return;
    SetIndex::Shard& listed = part.shard.listed;
    if (other == 0) {
      part.count = listed.samples;
      info_.bytes += listed.image_bytes;
      return;
    }
    const Pin pin(*this, part);
    part.count = part.entries.size();
    listed.largest_label = -1;
    for (const Entry& entry : part.entries) {
      info_.bytes += entry.size;
      listed.largest_label = std::max(listed.largest_label, entry.label);
    }
  }

  void count_classes(const DataOptions& options) {
    const auto count = static_cast<std::int64_t>(info_.classes.size());
    if (!by_label_) {
      if (options.classes != 0 && count > options.classes)
        throw DataError(fmt::format("{}: {} classes where {} are set; '{}' is the first too many",
                                    info_.path, count, options.classes,
                                    info_.classes[static_cast<std::size_t>(options.classes)]),
                        fmt::format("set model.classes={}", count));
      return;
    }
    const auto largest =
        std::max_element(parts_.begin(), parts_.end(), [](const auto& a, const auto& b) {
          return a->shard.listed.largest_label < b->shard.listed.largest_label;
        });
    const std::int64_t label = (*largest)->shard.listed.largest_label;
    const std::int64_t most = options.classes != 0 ? options.classes : max_classes(info_.count);
    if (label >= most)
      throw DataError(fmt::format("{}: label {} is not below {} classes",
                                  (*largest)->shard.url.text(), label, most),
                      fmt::format("set model.classes={} if that is what the set holds", label + 1));
    info_.classes = set_.classes();
    const auto named = static_cast<std::int64_t>(info_.classes.size());
    if (named >= label + 1 && (options.classes == 0 || named == options.classes)) return;
    info_.classes = numbered_classes(options.classes != 0 ? options.classes : label + 1);
  }

  /// Decides how far ahead archives are fetched: a window, and at least two archives.
  void look_ahead(const RemoteOptions& options) {
    if (ranges_ || checked_) return;
    std::uint64_t most = 0;
    for (const auto& part : parts_) most = std::max(most, part->count);
    const bool global = options.reach == std::numeric_limits<std::uint64_t>::max();
    const std::uint64_t ahead = std::max(2 * most, global ? 0 : options.reach / 2);
    const std::uint64_t reach = global ? options.reach : options.reach + ahead;
    if (options.cache_bytes > 0 && bytes_within(reach) > options.cache_bytes) return;
    lookahead_ = ahead;
    ahead_ = std::make_unique<ReadAhead>(options.connections,
                                         [this](std::size_t index) { open_ahead(part_of(index)); });
  }

  /// Returns the most bytes of archives that are needed at about the same time.
  std::uint64_t bytes_within(std::uint64_t reach) const {
    std::uint64_t need = 0, bytes = 0;
    for (std::size_t first = 0, behind = 0; first < parts_.size(); ++first) {
      const std::uint64_t last_sample = parts_[first]->first + parts_[first]->count - 1;
      while (behind < parts_.size() &&
             parts_[behind]->first - std::min(parts_[behind]->first, last_sample) <= reach)
        bytes += parts_[behind++]->shard.listed.size;
      need = std::max(need, bytes);
      bytes -= parts_[first]->shard.listed.size;
    }
    return need;
  }

  /// Throws unless the cache holds all archives that are needed at about the same time.
  void check_room(const RemoteOptions& options) const {
    const std::uint64_t need = bytes_within(options.reach);
    if (need <= options.cache_bytes) return;
    const bool global = options.reach == std::numeric_limits<std::uint64_t>::max();
    throw UsageError(
        fmt::format(
            "data.remote.cache_bytes={}: loader.shuffle reads {} bytes of archives at about "
            "the same time, and each would be fetched again and again",
            options.cache_bytes, need),
        global ? fmt::format("set data.remote.cache_bytes={} or more, or loader.shuffle=window:N, "
                             "which reads the set piece by piece",
                             need)
               : fmt::format("set data.remote.cache_bytes={} or more, or a smaller window", need));
  }

  mutable RemoteSet set_;
  const bool ranges_;  ///< samples are fetched one by one, and nothing is cached
  std::vector<std::unique_ptr<Part>> parts_;
  const bool checked_;  ///< compares the SHA-256 of archives that were in the cache
  bool by_label_ = false;
  mutable KeptOpen kept_;
  std::uint64_t lookahead_ = 0;  ///< samples
  std::unique_ptr<ReadAhead> ahead_;
  mutable std::mutex closing_;
  mutable std::size_t hand_ = 0;  ///< guarded by closing_
};

bool Readers::let_go() {
  const std::lock_guard lock(mutex_);
  return std::any_of(readers_.begin(), readers_.end(),
                     [](const RemoteReader* reader) { return reader->let_go(); });
}

}  // namespace

std::unique_ptr<Reader> open_remote_tar(const DataOptions& options) {
  return std::make_unique<RemoteReader>(options);
}

}  // namespace millrace::pipeline
