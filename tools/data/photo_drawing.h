// Draws a photograph-like image: sky-like gradients, noise on every scale and lit shapes, with as
// much detail as a camera's picture, so that decoding costs as much.
#pragma once

#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "millrace/image.h"

namespace millrace::tools {

struct Photo {
  Size size;
  std::vector<std::uint8_t> pixels;  ///< interleaved RGB
};

/// `label` of `classes` decides the main colour, the kind of shapes and the grain; `draw` decides
/// the rest. About 500x375, with sides from 300 to 640 pixels.
Photo draw_photo(int label, int classes, Draw& draw);

}  // namespace millrace::tools
