// Reader "yolo": images with the boxes of YOLO's label files.
#pragma once

#include <memory>
#include <string>

#include "base/private_api.h"
#include "millrace/reader.h"

namespace millrace::pipeline {

/// Folders of a split, both with the same folders and names inside: a.jpg belongs to a.txt.
struct YoloFolders {
  std::string images, labels;  ///< empty: there is no such split
};

/// Returns the first of images/SPLIT and labels/SPLIT, both also with 2017 behind SPLIT, and
/// SPLIT/images and SPLIT/labels that exist in a folder. If no split does, images and labels
/// themselves are "train".
MILLRACE_PRIVATE_API YoloFolders find_yolo(const std::string& folder, const std::string& split);

/// Opens the folder `options.path`. Reads all label files; an image without one has no objects.
/// Classes are the names in its data.yaml, or the lines of its classes.txt, and numbers without
/// both; data.yaml also says whether lines have key points. Labels are 0: an image has no class of
/// its own.
std::unique_ptr<Reader> open_yolo(const DataOptions& options);

}  // namespace millrace::pipeline
