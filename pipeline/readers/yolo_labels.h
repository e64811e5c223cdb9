// YOLO's label files: a text file per image, and an object per line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "millrace/annotations.h"

namespace millrace::pipeline {

/// Appends to `to` an image with the objects of its label file, in fractions of the image. A line
/// is CLASS X Y WIDTH HEIGHT, a box by its centre, or CLASS X1 Y1 X2 Y2 X3 Y3 and so on, an outline
/// of which the bounding box is taken. If `to` has key points, it is always a box, followed by
/// `numbers_per_point` numbers of each: x and y of visible ones, or x, y and visibility. Boxes are
/// clipped to the image; returns how many are left out, as they have no area then. Throws DataError
/// with FILE:LINE for any other line, a class that is not below `classes`, and more than
/// kMaxObjects objects.
std::uint64_t parse_yolo(const std::string& file, std::string_view text, std::int64_t classes,
                         Annotations& to, std::size_t numbers_per_point = 3);

}  // namespace millrace::pipeline
