// Makes and checks the indexes of archives.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/readers/set_index.h"
#include "tools/data/parallel.h"

namespace millrace::tools {

struct IndexReport {
  std::vector<std::string> files;  ///< the archives, in the order of set.shards
  pipeline::SetIndex set;          ///< what was found in them
  std::string set_file;            ///< empty: not written, because a file or a pattern was given
};

/// Returns the archives that `path` means: a file, a pattern, or all splits of a folder.
std::vector<std::string> archives_of(const std::string& path);

/// Writes an index next to each archive of `path`, and one of the whole set if it is a folder.
/// Throws DataError for an archive that is damaged or changes meanwhile, and RunError for an index
/// that cannot be written. `progress` counts archives.
IndexReport make_indexes(const std::string& path, const Progress& progress);

/// Returns one line for each index of `path` that is damaged, stale, or does not describe the
/// content of its archive (SHA-256), and for a set index that does not list the archives.
std::vector<std::string> check_indexes(const std::string& path);

}  // namespace millrace::tools
