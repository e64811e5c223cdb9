// Which archives a data.path means: one file, all of a folder's, or those of a pattern.
#pragma once

#include <string>
#include <vector>

#include "pipeline/readers/split.h"

namespace millrace::pipeline {

struct TarFiles {
  std::vector<std::string> files;  ///< in order
  std::string folder;              ///< that they lie in; of the first, for a pattern
  bool of_split = false;           ///< their names or folder chose the split already
};

/// `path` is
/// - a file,
/// - a folder: DIR/SPLIT/*.tar, or else DIR/SPLIT*.tar, or else, with no split in any name, all of
///   DIR/*.tar (val and valid count as test; sorted bytewise),
/// - a pattern: shard-{000..003}.tar, shard-{a,b}.tar, shard-*.tar.
/// Throws DataError when there are none, MissingSplit when there are some of another split.
TarFiles find_tars(const std::string& path, const std::string& split);

/// Expands {000..003} and {a,b}; without braces, the text itself. Throws DataError for more than a
/// million names.
std::vector<std::string> expand_braces(const std::string& pattern);

}  // namespace millrace::pipeline
