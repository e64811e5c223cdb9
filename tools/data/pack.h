// Packs a data set into archives: WebDataset's shards (KEY.jpg, KEY.cls) from any source, with
// their indexes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/data/parallel.h"
#include "tools/data/shrink.h"

namespace millrace::tools {

struct PackOptions {
  std::string source;  ///< a set of encoded images: folder, tar, manifest
  std::string reader;  ///< empty: detected
  /// A folder, which receives SPLIT-000000.tar, ... of every split, and classes.txt; or a name that
  /// ends in .tar, with {000..003} for several, which receives `split` alone.
  std::string target;
  std::string split = "train";
  std::uint64_t shards = 0;       ///< number per split; 0: by size
  std::uint64_t shard_bytes = 0;  ///< most bytes per shard; 0: 1 GB
  bool force = false;             ///< overwrite existing files
  ShrinkOptions shrink;           ///< resizes large images; lossy
  Progress progress;              ///< counts samples written and read back; may throw to abort
};

struct PackedSplit {
  std::string name;
  std::uint64_t count = 0;         ///< number of samples
  std::uint64_t bytes = 0;         ///< size of the archives
  std::vector<std::string> files;  ///< full paths
};

/// Writes under temporary names, reads everything back, compares count, labels, class names and
/// every byte, and then moves the archives to their places. Equal sets give equal bytes. Throws
/// DataError for a source that cannot be read or a class name of more than one line, UsageError for
/// a source without encoded images, RunError for a target that holds something else (unless
/// `force`), cannot be written or reads back differently.
std::vector<PackedSplit> pack(const PackOptions& options);

}  // namespace millrace::tools
