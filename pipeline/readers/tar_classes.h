// Which of an archive's folders belong to a split, and which class each of them is.
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

/// Where every folder has a part that names a split, at one depth (train/CLASS, set/test/CLASS),
/// those of `split` are chosen, unless `of_split` says that all are. What follows that part, or
/// else what all have in common, begins with the class; `lone_class` names the only one where
/// nothing follows. `by_label`: classes come from elsewhere, only the split is looked at.
/// Throws DataError with `path` where the folders make no sense.
TarClasses sort_out_folders(const std::vector<std::string>& folders, const std::string& split,
                            bool of_split, bool by_label, const std::string& lone_class,
                            const std::string& path);

}  // namespace millrace::pipeline
