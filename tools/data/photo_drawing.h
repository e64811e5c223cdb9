// One made-up photograph: sky-like gradients, noise on every scale and lit shapes, with as much
// detail as a camera's picture, so that decoding it costs what decoding a real one does.
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

/// `label` of `classes` decides the main colour, the kind of shapes and the grain; `draw` the rest.
/// About 500x375, sides from 300 to 640 pixels.
Photo draw_photo(int label, int classes, Draw& draw);

}  // namespace millrace::tools
