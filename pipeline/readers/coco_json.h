// COCO's annotation files: images, boxes, key points and categories, parsed from JSON in memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/annotations.h"

namespace millrace::pipeline {

struct CocoSet {
  std::vector<std::string> files;    ///< per image: its file_name, in the order of the list
  std::vector<std::string> classes;  ///< the categories' names, by rising id
  Annotations annotations;           ///< a sample per image, also of those without objects
  std::uint64_t empty_boxes = 0;     ///< boxes without area inside their image, which are left out
};

/// Parses {"images": [...], "annotations": [...], "categories": [...]}; ignores other keys, and
/// annotations with "iscrowd": 1. Boxes are clipped to their images. Throws DataError with `file`
/// and the entry, as annotations[7], for damaged JSON, missing or mistyped values, unknown ids, and
/// an image with more than kMaxObjects objects. With `outlines`, every object needs one.
CocoSet parse_coco(const std::string& file, std::string_view text, bool outlines = false);

}  // namespace millrace::pipeline
