// Readers: where samples come from. One class a format under readers/.
#pragma once

#include <array>
#include <climits>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/buffer.h"
#include "millrace/image.h"
#include "millrace/param.h"

namespace millrace {

/// What a data set is, known once it is open.
struct DatasetInfo {
  std::string reader;                ///< "idx", "cifar", "folder", "tar", "manifest", "synthetic"
  std::string path;                  ///< as given
  std::string split;                 ///< "train" or "test"
  std::uint64_t count = 0;           ///< samples
  std::vector<std::string> classes;  ///< names; a label is an index here
  bool encoded = false;              ///< bytes need a decoder; else they are pixels:
  Size size;                         ///< of every image (not encoded)
  int channels = 0;                  ///< 1 or 3 (not encoded)
  bool planar = false;               ///< channels after each other instead of interleaved
  std::uint64_t fingerprint = 0;     ///< of names, sizes and, where they are in memory, contents
  std::uint64_t bytes = 0;           ///< of all samples as they are stored; 0: not known
  bool in_place = false;             ///< read() points into the reader's memory, scratch is unused
};

/// One sample's bytes, borrowed: valid until the scratch buffer they came with is used again.
struct Sample {
  std::span<const std::uint8_t> bytes;  ///< kTailSlack bytes behind them may be read
  std::int64_t label = 0;
  bool held = false;  ///< data.cache=ram had them already: no storage was asked
};

/// Where a sample's bytes lie in storage.
struct Location {
  std::array<char, PATH_MAX> path;  ///< ended by a zero
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  bool whole_file = false;  ///< nothing may lie before or behind them
  std::int64_t label = 0;
};

/// What data.cache=cold has seen so far.
struct ColdCounts {
  std::uint64_t proven = 0;    ///< reads before which no page was in memory
  std::uint64_t resident = 0;  ///< reads whose pages could not be thrown out
};

/// Samples by index. Immutable once open; read() may be called from many threads.
class Reader {
 public:
  virtual ~Reader() = default;
  const DatasetInfo& info() const { return info_; }
  /// Throws DataError when the sample cannot be read. Copies nothing where the bytes are mapped.
  virtual Sample read(std::uint64_t index, Buffer& scratch) const = 0;
  /// What to call a sample in a message: a path, or a file and a place in it.
  virtual std::string name(std::uint64_t index) const = 0;
  /// Where a sample can be read from a file as it is; false where it cannot (inflated, made up).
  virtual bool locate(std::uint64_t, Location&) const { return false; }
  virtual ColdCounts cold() const { return {}; }

 protected:
  DatasetInfo info_;
};

/// `data.cache`: what stands between a reader and its storage.
enum class Cache {
  os,    ///< the system's page cache, as it is
  ram,   ///< each sample's bytes are kept in memory from its first read on
  cold,  ///< the page cache is emptied before every read, and that it is empty is checked
};

/// `data.synthetic.*`: the images that reader "synthetic" makes up.
struct SyntheticOptions {
  std::uint64_t count = 60'000;
  Size size{32, 32};
  int channels = 3;
  int classes = 10;
};

struct DataOptions {
  std::string reader = "idx";
  std::string path;
  std::string split = "train";
  int classes = 0;  ///< labels must lie below this; 0: the data set says how many there are
  Cache cache = Cache::os;
  SyntheticOptions synthetic{};
  /// Told what goes on although it is not as asked for; may be empty, called from any thread.
  std::function<void(const std::string&)> warn{};
  std::map<std::string, Value> parameters{};  ///< of a plugin's reader; others have their default
};

/// A built-in reader, as lists show it.
struct ReaderDeclaration {
  std::string name;
  std::string help;
};
std::vector<ReaderDeclaration> built_in_readers();

/// Opens and checks a data set (headers, counts, labels; not the pixels). Throws DataError with
/// the file, what is wrong with it and what to do, or UsageError for an unknown reader or a cache
/// that it cannot have.
std::unique_ptr<Reader> open_reader(const DataOptions& options);

}  // namespace millrace
