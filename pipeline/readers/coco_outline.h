// The key "segmentation" of COCO's annotations: polygons, and runs as numbers or packed as text.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "millrace/annotations.h"

namespace millrace::pipeline {

/// Most numbers and lists in the outline of an object, far above those of any data set that is
/// trained on. The parser of the file counts them; parse_outline() counts runs packed as text.
inline constexpr std::size_t kMaxOutlineNumbers = 1 << 18;

/// One object's outline, and the size of the image that its runs are for.
struct CocoOutline {
  std::vector<std::vector<float>> polygons;
  std::vector<std::uint32_t> runs;
  std::optional<Size> size;

  void append_to(Outlines& outlines) const;
};

/// Parses a list of polygons, or {"size": [height, width], "counts": numbers or text}. Throws
/// DataError without the place.
CocoOutline parse_outline(const nlohmann::json& json);

}  // namespace millrace::pipeline
