// Readers: where samples come from. One class a format under readers/.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pipeline/buffer.h"
#include "pipeline/image.h"
#include "pipeline/param.h"

namespace millrace {

/// What a data set is, known once it is open.
struct DatasetInfo {
  std::string reader;                ///< "idx", "cifar", "folder"
  std::string path;                  ///< as given
  std::string split;                 ///< "train" or "test"
  std::uint64_t count = 0;           ///< samples
  std::vector<std::string> classes;  ///< names; a label is an index here
  bool encoded = false;              ///< bytes need a decoder; else they are pixels:
  Size size;                         ///< of every image (not encoded)
  int channels = 0;                  ///< 1 or 3 (not encoded)
  bool planar = false;               ///< channels after each other instead of interleaved
  std::uint64_t fingerprint = 0;     ///< of names, sizes and, where they are in memory, contents
};

/// One sample's bytes, borrowed: valid until the scratch buffer they came with is used again.
struct Sample {
  std::span<const std::uint8_t> bytes;  ///< kTailSlack bytes behind them may be read
  std::int64_t label = 0;
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

 protected:
  DatasetInfo info_;
};

struct DataOptions {
  std::string reader = "idx";
  std::string path;
  std::string split = "train";
  int classes = 0;  ///< labels must lie below this; 0: the data set says how many there are
  std::map<std::string, Value> parameters{};  ///< of a plugin's reader; others have their default
};

/// A built-in reader, as lists show it.
struct ReaderDeclaration {
  std::string name;
  std::string help;
};
std::vector<ReaderDeclaration> built_in_readers();

/// Opens and checks a data set (headers, counts, labels; not the pixels). Throws DataError with
/// the file, what is wrong with it and what to do, or UsageError for an unknown reader.
std::unique_ptr<Reader> open_reader(const DataOptions& options);

}  // namespace millrace
