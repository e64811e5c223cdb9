// Readers: sources of samples. A reader opens a data set in one format and returns the bytes of a
// sample by index. The formats are in pipeline/readers.
#pragma once

#include <array>
#include <atomic>
#include <climits>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/annotations.h"
#include "millrace/buffer.h"
#include "millrace/export.h"
#include "millrace/image.h"
#include "millrace/param.h"

namespace millrace {

/// Names the content of one archive of a data set.
struct ArchiveInfo {
  std::string name;                       ///< file name, without its folder
  std::uint64_t fingerprint = 0;          ///< hash of the names and sizes of its samples
  std::array<std::uint8_t, 32> sha256{};  ///< of the archive; zeros: not known without reading it
  std::string file;                       ///< where its bytes can be read while the set is open
  std::string url{};                      ///< of a remote archive
  std::string version{};  ///< what its server says of it, such as its ETag, if there is no SHA-256
};

/// Describes a data set once it is open.
struct DatasetInfo {
  std::string reader;  ///< "idx", "cifar", "folder", "tar", "manifest", "synthetic", or a plugin's
  std::string path;    ///< as given in DataOptions
  std::string split;   ///< "train" or "test"
  std::uint64_t count = 0;            ///< number of samples
  std::vector<std::string> classes;   ///< names; a label is an index into this list
  bool encoded = false;               ///< the bytes need a decoder; otherwise they are pixels:
  Size size;                          ///< size of every image (not encoded)
  int channels = 0;                   ///< 1 or 3 (not encoded)
  bool planar = false;                ///< one channel after the other instead of interleaved
  std::uint64_t fingerprint = 0;      ///< hash of names, sizes and, for data in memory, contents
  std::uint64_t bytes = 0;            ///< size of all samples as stored; 0: unknown
  bool in_place = false;              ///< read() returns the reader's own memory, not the scratch
  std::vector<ArchiveInfo> archives;  ///< in the set's order; empty for sets without archives
  bool requested = false;             ///< each sample is read by a request to a server
  bool masks = false;                 ///< each sample has a mask: Reader::mask()
  /// Names of Sample::members: endings behind the keys' first dot, in lower case (DataOptions).
  std::vector<std::string> members;
};

/// Bytes of a member of an archive beside an image, borrowed; nothing if the sample has none of the
/// name.
using Member = std::optional<std::span<const std::uint8_t>>;

/// One sample's bytes, borrowed. They are valid until the scratch buffer that was passed to read()
/// is used again, and as long as the reader.
struct Sample {
  std::span<const std::uint8_t> bytes;  ///< kTailSlack bytes behind them may be read
  std::int64_t label = 0;
  bool held = false;  ///< served from memory by data.cache=ram, without access to storage
  std::span<const Member> members{};  ///< one for each of DatasetInfo::members; as valid as bytes
  /// The PNG file of its mask, as valid as bytes, where it lies beside the image and is read with
  /// it. Empty otherwise: then Reader::mask() reads it.
  std::span<const std::uint8_t> mask{};
};

/// Values that a data set lists per sample besides a class: either numbers, equally many for
/// every sample, or JSON values.
struct MILLRACE_EXPORT Targets {
  bool numeric = false;
  std::size_t width = 0;       ///< numeric: length of each list of numbers; 0: plain numbers
  std::vector<float> numbers;  ///< numeric: max(width, 1) per sample, in the order of the samples
  std::string text;            ///< not numeric: JSON values one after the other
  std::vector<std::uint64_t> ends;  ///< not numeric: end of each sample's value in `text`

  /// Returns the numbers of the sample at `index`, if the targets are numeric.
  std::span<const float> numbers_of(std::uint64_t index) const;
  /// Returns the JSON value of the sample at `index`, if the targets are not numeric.
  std::string_view json_of(std::uint64_t index) const;
};

/// Position of a sample's bytes in a file.
struct Location {
  std::array<char, PATH_MAX> path;  ///< zero-terminated
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  bool whole_file = false;  ///< the file must hold nothing before or after these bytes
  std::int64_t label = 0;
};

/// Counters of data.cache=cold.
struct ColdCounts {
  std::uint64_t proven = 0;    ///< reads before which no page was in memory
  std::uint64_t resident = 0;  ///< reads whose pages could not be evicted
};

/// Returns samples by index. Immutable once open: all members may be called from many threads, each
/// with a scratch buffer of its own.
class Reader {
 public:
  virtual ~Reader() = default;
  /// Returns the description of the data set; valid as long as the reader.
  const DatasetInfo& info() const { return info_; }
  /// Returns the sample at `index` (0 <= index < info().count). Copies nothing if the bytes are
  /// mapped; otherwise the bytes lie in `scratch`. Throws DataError if the sample cannot be read.
  virtual Sample read(std::uint64_t index, Buffer& scratch) const = 0;
  /// Returns a sample's name for messages: a path, or a file and a position in it.
  virtual std::string name(std::uint64_t index) const = 0;
  /// Returns a sample's label, by default that of read(). Throws as read() does.
  virtual std::int64_t label(std::uint64_t index) const {
    Buffer scratch;
    return read(index, scratch).label;
  }
  /// Writes the file range that holds the sample's stored bytes, and returns true. Returns false if
  /// there is none, as for compressed or generated samples.
  virtual bool locate(std::uint64_t, Location&) const { return false; }
  /// Returns the PNG file of a sample's mask, whose pixels are class ids; valid as the bytes of
  /// read(). Empty if the data set has no masks. Throws DataError if the file cannot be read.
  virtual std::span<const std::uint8_t> mask(std::uint64_t, Buffer&) const { return {}; }
  /// Writes the file range that holds the sample's mask, and returns true; as locate().
  virtual bool locate_mask(std::uint64_t, Location&) const { return false; }
  /// Returns how many samples before a read expect() should announce it; 0: not at all.
  virtual std::uint64_t lookahead() const { return 0; }
  /// Announces a sample that will be read later, in the order of the reads. Returns at once.
  virtual void expect(std::uint64_t) const {}
  /// Returns the targets of all samples, valid as long as the reader; null if the data set has
  /// none.
  virtual const Targets* targets() const { return nullptr; }
  /// Returns the objects in all images, valid as long as the reader; null if the data set marks
  /// none.
  virtual const Annotations* annotations() const { return nullptr; }
  /// Returns the counters of data.cache=cold so far; zero with other caches.
  virtual ColdCounts cold() const { return {}; }

 protected:
  DatasetInfo info_;
};

/// `data.cache`: the cache between a reader and its storage.
enum class Cache {
  os,    ///< the operating system's page cache, untouched
  ram,   ///< each sample's bytes stay in memory after their first read
  cold,  ///< pages are evicted before every read, and a check confirms that they are gone
};

/// `data.index`: whether reader "tar" opens archives through their index files.
enum class IndexUse {
  automatic,  ///< where there is one that fits; other archives are walked, and their listings
              ///< cached
  require,    ///< every archive needs one that fits
  off,        ///< every archive is walked, and nothing is cached
};

/// `data.synthetic.*`: the images that reader "synthetic" generates.
struct SyntheticOptions {
  std::uint64_t count = 60'000;
  Size size{32, 32};
  int channels = 3;
  int classes = 10;
};

/// `data.remote.fetch`: what is asked of a server.
enum class RemoteFetch {
  automatic,  ///< ranges where the order overruns the cache, and archives otherwise
  shards,     ///< whole archives, which are kept in a cache
  ranges,     ///< the bytes of each sample when it is read, and nothing is kept
};

/// What a request to stop ends.
enum class StopAt {
  once,     ///< every transfer and wait
  failure,  ///< waits for a server that has failed; transfers and waits that progress go on
};

/// `data.remote.*`: how a set behind http:// or https:// is fetched.
struct RemoteOptions {
  RemoteFetch fetch = RemoteFetch::automatic;
  std::string cache;  ///< folder for fetched archives; empty: in the user's cache directory
  std::uint64_t cache_bytes = 0;  ///< limit of that folder; 0: none
  double deadline_s = 120;        ///< longest time without progress before a run ends
  int connections = 4;            ///< archives that are fetched ahead at once
  /// Most samples between two that are needed at about the same time, in the set's order. A cache
  /// that cannot hold them is refused. UINT64_MAX: any two samples; 0: not checked.
  std::uint64_t reach = 0;
  /// The request to stop. May be null; must outlive the reader.
  const std::atomic<bool>* stop = nullptr;
  StopAt stop_at = StopAt::once;
};

/// `data.fold`: part `part` of `parts`, which counts from 1, is tested on, and the rest trained on.
struct Fold {
  std::uint64_t part = 1;
  std::uint64_t parts = 2;
};

/// `[data]`: which data set to open, and how.
struct DataOptions {
  std::string reader = "idx";
  std::string path;
  std::string split = "train";
  int classes = 0;  ///< number of classes, which labels must lie below; 0: taken from the data set
  Cache cache = Cache::os;
  SyntheticOptions synthetic{};
  /// Receives a warning when the reader continues although a request could not be met. May be
  /// empty; may be called from any thread.
  std::function<void(const std::string&)> warn{};
  /// Parameters of a plugin's reader; missing ones have their defaults.
  std::map<std::string, Value> parameters{};
  IndexUse index = IndexUse::automatic;
  RemoteOptions remote{};
  /// Divides split "train", in each class alike: split "test" is then its part, and "train" the
  /// rest.
  std::optional<Fold> fold{};
  /// `data.subset`: a text file of indices, one per line, which split "train" is limited to; empty:
  /// none.
  std::string listed{};
  double fraction = 1;  ///< `data.fraction`: of each class, which split "train" is limited to
  bool instance_masks = false;  ///< `data.instance_masks`: keep Annotations::outlines
  /// `data.masks`: where masks are: with reader "folder" their folder, with "manifest" the column
  /// of their paths, with "tar" the ending of a member, as "seg.png". Empty: there are none.
  std::string masks{};
  /// Reader "folder" lists NumPy arrays as images (with `decode.depth`).
  bool arrays = false;
  /// `data.members`: endings of other members that reader "tar" hands out, in lower case and
  /// without the first dot, as "txt" and "seg.png"; at most 64.
  std::vector<std::string> members{};
};

/// Name and help line of a built-in reader.
struct ReaderDeclaration {
  std::string name;
  std::string help;
};
/// Returns the built-in readers.
MILLRACE_EXPORT std::vector<ReaderDeclaration> built_in_readers();

/// Opens a data set and checks its headers, counts and labels, but not its pixels. The caller owns
/// the reader. Throws DataError with the file, the defect and a remedy, and UsageError for an
/// unknown reader or a cache that the reader does not support.
MILLRACE_EXPORT std::unique_ptr<Reader> open_reader(const DataOptions& options);

}  // namespace millrace
