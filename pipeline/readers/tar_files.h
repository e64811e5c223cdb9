// The archives that a data.path means: one file, all files of a folder, or those of a pattern.
#pragma once

#include <string>
#include <vector>

#include "pipeline/readers/split.h"

namespace millrace::pipeline {

struct TarFiles {
  std::vector<std::string> files;  ///< in order
  std::string folder;              ///< the folder that holds them, or the first one for a pattern
  bool of_split = false;           ///< their names or folder selected the split already
};

/// Finds the archives of `path`, which is
/// - a file,
/// - a folder: DIR/SPLIT/*.tar, or else DIR/SPLIT*.tar, or else, with no split in any name, all of
///   DIR/*.tar (val and valid count as test; sorted bytewise),
/// - a pattern: shard-{000..003}.tar, shard-{a,b}.tar, shard-*.tar.
/// Throws DataError if there are none, and MissingSplit if there are only those of another split.
TarFiles find_tars(const std::string& path, const std::string& split);

/// Expands {000..003} and {a,b}; returns the text itself without braces. Throws DataError for more
/// than a million names.
std::vector<std::string> expand_braces(const std::string& pattern);

}  // namespace millrace::pipeline
