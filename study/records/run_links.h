// Links in the directory of a run or a sweep, which anyone may have made.
#pragma once

#include <filesystem>

namespace millrace::study {

/// Throws UsageError if `entry` of `directory` is a symbolic link that leads out of the directory.
void refuse_link_outside(const std::filesystem::path& entry,
                         const std::filesystem::path& directory);

/// Does so for every entry that a writer of a run or a sweep may write to, cut or remove: those of
/// the directory itself, of checkpoints, of runs and of blocks. A data set in it (`data`) is only
/// read. Links that stay in the directory, as checkpoints/last does, are the run's own.
void refuse_links_outside(const std::filesystem::path& directory);

}  // namespace millrace::study
