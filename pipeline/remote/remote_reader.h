// The reader of remote archives.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "millrace/reader.h"
#include "pipeline/readers/kept_open.h"
#include "pipeline/readers/tar_index.h"
#include "pipeline/readers/tar_members.h"
#include "pipeline/remote/read_ahead.h"
#include "pipeline/remote/remote_set.h"

namespace millrace::pipeline {

/// Reads samples of a remote set. remote_listing.cpp says which they are, remote_reader.cpp opens
/// archives and reads.
class RemoteReader final : public Reader {
 public:
  explicit RemoteReader(const DataOptions& options);
  ~RemoteReader() override;
  RemoteReader(const RemoteReader&) = delete;
  RemoteReader& operator=(const RemoteReader&) = delete;

  Sample read(std::uint64_t index, Buffer& scratch) const override;
  std::span<const std::uint8_t> mask(std::uint64_t index, Buffer& scratch) const override {
    return read(index, scratch).mask;
  }
  std::string name(std::uint64_t index) const override;
  /// Opens the sample's archive: fetches it, or with ranges its index.
  std::int64_t label(std::uint64_t index) const override;
  bool locate(std::uint64_t index, Location& location) const override;
  std::uint64_t lookahead() const override { return lookahead_; }
  void expect(std::uint64_t index) const override;

  /// Closes an archive that is not being read, one that was not used lately if there is one.
  bool let_go() const;

 private:
  /// Value of Part::pins while the archive is not open.
  static constexpr std::int64_t kAway = std::numeric_limits<std::int64_t>::min();

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
    bool counted = false;                 ///< `file` is counted in RemoteReader::kept_
    std::vector<Entry> entries;           ///< filled when the archive is first opened
    std::vector<TarSurroundings> around;  ///< of `entries`, if members are handed out
    double open_s = 0;  ///< duration of the last opening, and what it was spent on
    FetchTimes spent{};
    // Used when samples are read by ranges.
    std::mutex identity;
    std::string etag;  ///< guarded by identity; strong one of the first range, or empty
  };

  /// Keeps an archive open.
  class Pin {
   public:
    Pin(const RemoteReader& reader, Part& part);
    ~Pin() { part_.pins.fetch_sub(1, std::memory_order_release); }
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;
    Part& part() const { return part_; }

   private:
    Part& part_;
  };

  /// All readers of this process: one that needs room closes archives of the others too.
  class Readers {
   public:
    static Readers& all();
    void add(const RemoteReader* reader);
    void remove(const RemoteReader* reader);
    bool let_go();

   private:
    std::mutex mutex_;
    std::vector<const RemoteReader*> readers_;
  };

  /// Returns whether samples are read by ranges. Throws if that is wanted and impossible.
  bool reads_ranges(const DataOptions& options) const;
  /// Fetches a part of an archive, which must have the ETag of the parts before.
  void fetch_range(Part& part, std::uint64_t first, std::uint64_t count, std::uint8_t* out) const;
  /// Reads a sample with its members.
  Sample read_group(Part& part, std::uint64_t index, Buffer& scratch) const;
  /// Reads a part of an archive that is in the cache.
  static void read_file(const Part& part, std::uint64_t first, std::uint64_t count,
                        std::uint8_t* out);
  std::string member_name(Part& part, const Entry& sample) const;
  static bool try_pin(Part& part);
  Part& part_of(std::uint64_t index) const;
  Location location_of(const Part& part, const Entry& sample) const;
  /// Opens an archive and pins it, once for all threads that ask.
  void open(Part& part) const;
  /// Opens an archive before it is read. Leaves failures to the read.
  void open_ahead(Part& part) const;
  void adopt_file(Part& part, base::Descriptor file) const;
  /// Counts the wait for another thread's opening like that one's own time.
  static void count_wait(const Part& part, double waited_s);
  /// Decides how far ahead archives are fetched: a window, and at least two archives.
  void look_ahead(const RemoteOptions& options);
  /// Returns the most bytes of archives that are needed at about the same time.
  std::uint64_t bytes_within(std::uint64_t reach) const;
  /// Throws unless the cache holds all archives that are needed at about the same time.
  void check_room(const RemoteOptions& options) const;

  // remote_listing.cpp

  /// Walks an archive of the cache, and keeps the samples of the split.
  void list(Part& part) const;
  /// Lists the samples of an archive by its index, which is fetched.
  void list_by_index(Part& part) const;
  static void check_listed(const Part& part, const TarIndex& index);
  void adopt(Part& part, const TarIndex& index) const;
  /// Fetches the archives that no set.index describes, and describes them.
  void list_unindexed();
  /// Returns whether the samples have labels of their own. Throws unless all or none have.
  bool has_labels() const;
  /// Selects the samples of the split, and numbers them.
  void choose(const DataOptions& options);
  /// Counts the samples of the split in one archive, which has to be fetched if it holds several
  /// splits.
  void number(Part& part);
  void count_classes(const DataOptions& options);

  const WantedMembers wanted_;
  mutable RemoteSet set_;
  const bool ranges_;  ///< samples are fetched one by one, and nothing is cached
  std::vector<std::unique_ptr<Part>> parts_;
  const bool checked_;  ///< compares the SHA-256 of archives that were in the cache
  bool by_label_ = false;
  SeenMembers seen_;
  mutable KeptOpen kept_;
  std::uint64_t lookahead_ = 0;  ///< samples
  std::unique_ptr<ReadAhead> ahead_;
  mutable std::mutex closing_;
  mutable std::size_t hand_ = 0;  ///< guarded by closing_
};

}  // namespace millrace::pipeline
