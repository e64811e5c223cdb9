// Archives of images, in WebDataset's layout or an image folder's. A sample is a range of a mapped
// archive. All archives together form one data set, so that a shuffle mixes them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/reader.h"

namespace millrace::pipeline {

std::unique_ptr<Reader> open_tar(const DataOptions& options);

/// Opens exactly these files, whatever their names; looks for class names in `folder`.
std::unique_ptr<Reader> open_tar_files(const DataOptions& options,
                                       const std::vector<std::string>& files,
                                       const std::string& folder);

/// Text file beside the archives with the class names, one per line.
inline constexpr const char* kClassNamesFile = "classes.txt";

}  // namespace millrace::pipeline
