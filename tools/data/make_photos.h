// Draws a photograph-like image: sky-like gradients, noise on every scale and lit shapes, with as
// much detail as a camera's picture, so that decoding costs as much.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/rng.h"
#include "millrace/image.h"
#include "tools/data/parallel.h"

namespace millrace::tools {

struct Photo {
  Size size;
  std::vector<std::uint8_t> pixels;  ///< interleaved RGB
};

/// `label` of `classes` decides the main colour, the kind of shapes and the grain; `draw` decides
/// the rest. About 500x375, with sides from 300 to 640 pixels.
Photo draw_photo(int label, int classes, Draw& draw);

// Generated image folder: JPEGs of a camera's size and detail, as decoding work.

struct PhotosOptions {
  std::string path;           ///< folder, created if necessary
  std::uint32_t count = 256;  ///< images of both splits together
  int classes = 8;            ///< 1 to 1000; every split has an image of each
  std::uint64_t seed = 0;
  int quality = 90;    ///< JPEG quality, 4:2:0
  int threads = 0;     ///< 0: one per core
  bool force = false;  ///< overwrite existing files
  Progress progress;
};

/// Writes train/CLASS/*.jpg and test/CLASS/*.jpg, one image in five for test. Keeps an existing
/// file if it is identical; otherwise, without `force`, throws RunError with the file in the way.
/// Throws RunError for a full disk too.
void make_photos(const PhotosOptions& options);

}  // namespace millrace::tools
