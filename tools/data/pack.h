// Archives of a data set: WebDataset's shards (KEY.jpg, KEY.cls), whatever the images came from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/data/parallel.h"

namespace millrace::tools {

struct PackOptions {
  std::string source;  ///< a set of encoded images: folder, tar, manifest
  std::string reader;  ///< empty: found out
  /// A folder, which gets SPLIT-000000.tar, ... of every split, and classes.txt; or a name that
  /// ends in .tar, with {000..003} for several, which gets `split` alone.
  std::string target;
  std::string split = "train";
  std::uint64_t shards = 0;       ///< of each split; 0: by size
  std::uint64_t shard_bytes = 0;  ///< most bytes a shard; 0: 1 GB
  bool force = false;             ///< write over what is there
  Progress progress;              ///< samples written and read back; may throw to end it
};

struct PackedSplit {
  std::string name;
  std::uint64_t count = 0;         ///< samples
  std::uint64_t bytes = 0;         ///< of the archives
  std::vector<std::string> files;  ///< full paths
};

/// Writes under temporary names, reads everything back, compares count, labels, class names and
/// every byte, and then puts the archives in their places. The same set gives the same bytes.
/// Throws DataError for a source that cannot be read or a class name that takes more than a line,
/// UsageError for a source without encoded images, RunError for a target that holds something else
/// (unless `force`), cannot be written or reads back otherwise.
std::vector<PackedSplit> pack(const PackOptions& options);

}  // namespace millrace::tools
