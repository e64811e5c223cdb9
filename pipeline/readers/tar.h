// Archives of images: WebDataset's layout or an image folder's. A sample is a place in a mapped
// archive; all archives together are one data set, so that a shuffle goes across them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/reader.h"

namespace millrace::pipeline {

std::unique_ptr<Reader> open_tar(const DataOptions& options);

/// The same of these very files, whatever they are called; class names are looked for in `folder`.
std::unique_ptr<Reader> open_tar_files(const DataOptions& options,
                                       const std::vector<std::string>& files,
                                       const std::string& folder);

/// The text file beside archives that holds the classes' names, a line each.
inline constexpr const char* kClassNamesFile = "classes.txt";

}  // namespace millrace::pipeline
