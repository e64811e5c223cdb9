// Annotations: the objects that a data set marks in its images, and those that a batch holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "millrace/image.h"

namespace millrace {

/// A rectangle by its left, top, right and bottom edges. Positions are continuous, as
/// torchvision.transforms.v2 and COCO have them: pixel i covers [i, i + 1).
struct Box {
  float x0, y0, x1, y1;
};

/// A key point of an object, at a continuous position like a Box's edges.
struct KeyPoint {
  float x, y;
  float visibility;  ///< 0: not known, or outside of the image; 1: hidden; 2: visible (COCO)
};

/// Which pixels of their images objects cover: polygons, or runs down the columns.
struct Outlines {
  /// Ends of an object's part of polygon_ends, and of runs.
  struct Ends {
    std::uint64_t polygons = 0, runs = 0;
  };
  std::vector<Ends> ends;                   ///< per object
  std::vector<std::uint64_t> polygon_ends;  ///< per polygon: end of its numbers in `points`
  std::vector<float> points;                ///< x and y of each corner, in pixels
  /// Lengths of runs of pixels outside and inside in turns, outside first, column by column; those
  /// of an object that has any add up to its image.
  std::vector<std::uint32_t> runs;

  Ends begin(std::size_t object) const { return object > 0 ? ends[object - 1] : Ends{}; }
};

/// The objects in the images of a data set.
struct Annotations {
  std::vector<std::uint64_t> ends;    ///< per sample: end of its objects in the next three
  std::vector<Box> boxes;             ///< in pixels of the upright image, inside it
  std::vector<std::int64_t> classes;  ///< indices into DatasetInfo::classes
  std::vector<KeyPoint> key_points;   ///< `points` per object
  bool has_outlines = false;          ///< each object has one (DataOptions::instance_masks)
  Outlines outlines;                  ///< empty unless has_outlines
  std::size_t points = 0;             ///< key points per object
  /// Key points that exchange their places where the image is mirrored, if TargetOptions say none.
  std::vector<std::pair<std::size_t, std::size_t>> flip_pairs;
  std::vector<Size> sizes;              ///< per sample: its image's size; unused if `relative`
  std::vector<std::int64_t> image_ids;  ///< per sample: the data set's own number for its image
  bool relative = false;                ///< positions are fractions of the image's width and height

  /// Returns the index of the first object of the sample at `index`; its last one lies before
  /// ends[index].
  std::size_t begin(std::uint64_t index) const { return index > 0 ? ends[index - 1] : 0; }
};

/// `targets.format`: the four numbers of a box.
enum class BoxFormat {
  xyxy,    ///< left, top, right, bottom
  xywh,    ///< left, top, width, height
  cxcywh,  ///< centre, width, height
};

/// `targets.*`: how objects and masks are handed out, and which objects.
struct TargetOptions {
  BoxFormat format = BoxFormat::xyxy;
  bool relative = false;      ///< positions are fractions of the output's width and height
  double min_area = 1;        ///< smallest area of a box, in pixels of the output
  double min_visibility = 0;  ///< smallest part of a box's area that is left
  /// Key points that exchange their places where the image is mirrored.
  std::vector<std::pair<std::size_t, std::size_t>> flip_pairs{};
  std::uint8_t mask_fill = 255;  ///< class id of a mask's pixels that lie outside its image
};

/// The objects of a batch's samples that are left in their images, sample by sample. Positions are
/// those of the transformed images.
struct Objects {
  std::vector<std::int64_t> offsets{0};  ///< sample i has the objects [offsets[i], offsets[i + 1])
  std::vector<float> boxes;              ///< four numbers each (TargetOptions::format)
  std::vector<std::int64_t> classes;     ///< indices into DatasetInfo::classes
  std::vector<std::int64_t> origins;     ///< index of each among the annotations of its image
  std::vector<std::int64_t> samples;     ///< index in the data set of each one's image
  std::vector<float> weights;  ///< share of each in its sample: below 1 where images are blended
  /// Part of each box's area, and of its mask's pixels if others were pasted over it, that is left.
  std::vector<float> visibilities;
  std::vector<float> key_points;    ///< x, y and visibility of each point of each object
  std::size_t points = 0;           ///< key points per object
  std::vector<std::uint8_t> masks;  ///< 1 or 0 for each pixel of the sample, for each object
  std::size_t mask_bytes = 0;       ///< of one object; 0: there are none
};

}  // namespace millrace
