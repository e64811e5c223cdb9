// YOLO's data.yaml: names of classes, and key points.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::pipeline {

/// Facts of a data.yaml about the label files beside it.
struct YoloConfig {
  std::vector<std::string> names;     ///< of classes; empty: none are given
  std::size_t points = 0;             ///< key points per object
  std::size_t numbers_per_point = 3;  ///< 2: x and y; 3: a visibility too
  /// Key points that exchange their places where the image is mirrored.
  std::vector<std::pair<std::size_t, std::size_t>> flip_pairs;
};

/// Parses the keys `names`, `kpt_shape` and `flip_idx`, which are lists or, as `names` may be, a
/// mapping of numbers from 0 on, from the first document of YAML. Passes over all other keys.
/// Throws DataError with FILE:LINE for a file that is no YAML or longer than 1 MiB, and for values
/// of another form.
YoloConfig parse_yolo_config(const std::string& file, std::string_view text);

}  // namespace millrace::pipeline
