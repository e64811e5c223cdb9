// Data sets in tar archives.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/private_api.h"
#include "millrace/reader.h"
#include "pipeline/readers/tar_files.h"

namespace millrace::pipeline {

// Archives of images, in WebDataset's layout or an image folder's. A sample is a range of an
// archive, read with pread. All archives together form one data set, so that a shuffle mixes them.

/// Most samples of which a list is kept in memory, at 24 bytes each.
inline constexpr std::uint64_t kMaxListed = std::uint64_t{1} << 22;

/// Opens a set on a disk. One with more than `max_listed` samples is opened in O(archives) by its
/// set index, if that and the headers of the archives' indexes fit. Each sample is then looked up
/// in the index of its archive, which is checked when its first sample is read.
MILLRACE_PRIVATE_API std::unique_ptr<Reader> open_tar(const DataOptions& options,
                                                      std::uint64_t max_listed = kMaxListed);

/// Opens exactly these files, whatever their names; looks for class names in `folder`.
MILLRACE_PRIVATE_API std::unique_ptr<Reader> open_tar_files(const DataOptions& options,
                                                            const std::vector<std::string>& files,
                                                            const std::string& folder);

/// Text file beside the archives with the class names, one per line.
inline constexpr const char* kClassNamesFile = "classes.txt";

}  // namespace millrace::pipeline
