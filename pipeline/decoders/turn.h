// EXIF's orientations as views: an image is turned by how it is walked, no pixel moves.
#pragma once

#include <utility>

#include "millrace/image.h"

namespace millrace::pipeline {

/// How to get from a place in the image as it is to be seen to the stored one: x and y swap
/// (`transposed`), then each runs from the other end (`mirrored_x`, `mirrored_y`).
struct Turn {
  bool transposed, mirrored_x, mirrored_y;
};

/// `orientation`: 1 to 8. Source: EXIF 2.32, table of tag 0x0112.
constexpr Turn turn_of(int orientation) {
  constexpr Turn kTurns[] = {
      {false, false, false},  // 1: as stored
      {false, true, false},   // 2: mirrored
      {false, true, true},    // 3: half a turn
      {false, false, true},   // 4: upside down and mirrored
      {true, false, false},   // 5: rows are columns
      {true, false, true},    // 6: to be turned right
      {true, true, true},     // 7: rows are columns, from the other ends
      {true, true, false},    // 8: to be turned left
  };
  return kTurns[orientation - 1];
}

constexpr Size turned(Size stored, Turn turn) {
  return turn.transposed ? Size{stored.height, stored.width} : stored;
}

/// The part of the stored image (of that size) that `seen` shows.
constexpr Rect stored_rect(const Rect& seen, Size stored, Turn turn) {
  Rect rect = turn.transposed ? Rect{seen.y0, seen.x0, seen.y1, seen.x1} : seen;
  if (turn.mirrored_x) rect.x0 = stored.width - std::exchange(rect.x1, stored.width - rect.x0);
  if (turn.mirrored_y) rect.y0 = stored.height - std::exchange(rect.y1, stored.height - rect.y0);
  return rect;
}

/// A view of the whole stored image, turned.
constexpr ImageView turned(ImageView view, Turn turn) {
  if (turn.mirrored_x) {
    view.data += (view.width - 1) * view.pixel;
    view.pixel = -view.pixel;
  }
  if (turn.mirrored_y) {
    view.data += (view.height - 1) * view.row;
    view.row = -view.row;
  }
  if (turn.transposed) {
    std::swap(view.row, view.pixel);
    std::swap(view.width, view.height);
  }
  return view;
}

}  // namespace millrace::pipeline
