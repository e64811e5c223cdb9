// EXIF orientations as views: changes the strides of an image and moves no pixel.
#pragma once

#include <utility>

#include "millrace/image.h"

namespace millrace::pipeline {

/// Maps a position in the upright image to the stored one: x and y swap (`transposed`), then each
/// runs from the other end (`mirrored_x`, `mirrored_y`).
struct Orientation {
  bool transposed, mirrored_x, mirrored_y;
};

/// Decodes EXIF orientations 1 to 8 (EXIF 2.32, table of tag 0x0112).
constexpr Orientation orientation_of(int orientation) {
  constexpr Orientation kOrientations[] = {
      {false, false, false},  // 1: as stored
      {false, true, false},   // 2: mirrored
      {false, true, true},    // 3: rotated by 180 degrees
      {false, false, true},   // 4: upside down and mirrored
      {true, false, false},   // 5: transposed
      {true, false, true},    // 6: to be rotated right
      {true, true, true},     // 7: transposed and mirrored both ways
      {true, true, false},    // 8: to be rotated left
  };
  return kOrientations[orientation - 1];
}

constexpr Size oriented(Size stored, Orientation orientation) {
  return orientation.transposed ? Size{stored.height, stored.width} : stored;
}

/// Returns the part of the stored image (of size `stored`) that `seen` shows.
constexpr Rect stored_rect(const Rect& seen, Size stored, Orientation orientation) {
  Rect rect = orientation.transposed ? Rect{seen.y0, seen.x0, seen.y1, seen.x1} : seen;
  if (orientation.mirrored_x)
    rect.x0 = stored.width - std::exchange(rect.x1, stored.width - rect.x0);
  if (orientation.mirrored_y)
    rect.y0 = stored.height - std::exchange(rect.y1, stored.height - rect.y0);
  return rect;
}

/// Returns a view of the whole stored image, turned.
constexpr ImageView oriented(ImageView view, Orientation orientation) {
  if (orientation.mirrored_x) {
    view.data += (view.width - 1) * view.pixel;
    view.pixel = -view.pixel;
  }
  if (orientation.mirrored_y) {
    view.data += (view.height - 1) * view.row;
    view.row = -view.row;
  }
  if (orientation.transposed) {
    std::swap(view.row, view.pixel);
    std::swap(view.width, view.height);
  }
  return view;
}

}  // namespace millrace::pipeline
