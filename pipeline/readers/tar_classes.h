// Selects the folders of an archive that belong to a split, and maps each to a class.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::pipeline {

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
TarClasses sort_out_folders(const std::vector<std::string>& folders, const std::string& split,
                            bool of_split, bool by_label, const std::string& lone_class,
                            const std::string& path);

}  // namespace millrace::pipeline
