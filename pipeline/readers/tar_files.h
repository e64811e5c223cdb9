// Archives that a data.path means, and the splits and classes of their folders.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/private_api.h"

namespace millrace::pipeline {

/// The archives that a data.path means: one file, all files of a folder, or those of a pattern.
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
MILLRACE_PRIVATE_API TarFiles find_tars(const std::string& path, const std::string& split);

/// Selects a split's archives among `names`, relative to the folder `path`, by these rules.
TarFiles files_of_split(const std::vector<std::string>& names, const std::string& path,
                        const std::string& split);

/// Expands {000..003} and {a,b}; returns the text itself without braces. Throws DataError for more
/// than a million names.
MILLRACE_PRIVATE_API std::vector<std::string> expand_braces(const std::string& pattern);

/// Selects the folders of an archive that belong to a split, and maps each to a class.
struct TarClasses {
  static constexpr std::int32_t kOtherSplit = -1;
  std::vector<std::int32_t> of_folder;  ///< class of each folder, kOtherSplit, or 0 if `by_label`
  std::vector<std::string> classes;     ///< sorted bytewise; empty if `by_label`
};

/// Returns the folders' classes. If every folder has a part that names a split, at one depth
/// (train/CLASS, set/test/CLASS), selects those of `split`; if `of_split`, selects all. The class
/// begins behind that part, or else behind the parts that all folders share; `lone_class` names the
/// only class if nothing follows. With `by_label`, labels give the classes and only the split is
/// selected. Throws DataError with `path` for folders that fit no layout.
TarClasses classify_folders(const std::vector<std::string>& folders, const std::string& split,
                            bool of_split, bool by_label, const std::string& lone_class,
                            const std::string& path);

}  // namespace millrace::pipeline
