// Reader "coco": images with the objects that a COCO annotation file lists.
#pragma once

#include <memory>
#include <string>

#include "base/private_api.h"
#include "millrace/reader.h"

namespace millrace::pipeline {

/// Returns the annotation file of a split in a folder, or "" if there is none.
MILLRACE_PRIVATE_API std::string find_annotations(const std::string& folder,
                                                  const std::string& split);

/// Opens `options.path`: an annotation file, whose split is "train", or a folder with
/// annotations/instances_SPLIT.json, also with 2017 behind SPLIT, or SPLIT/_annotations.coco.json.
/// Images lie in the annotation file's folder, or beside that folder in SPLIT or images/SPLIT, as
/// the first of them does. Labels are 0: an image has no class of its own.
std::unique_ptr<Reader> open_coco(const DataOptions& options);

}  // namespace millrace::pipeline
