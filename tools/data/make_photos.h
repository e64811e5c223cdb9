// A generated image folder: JPEGs of a camera's size and detail, for decoding work.
#pragma once

#include <cstdint>
#include <string>

#include "tools/data/parallel.h"

namespace millrace::tools {

struct PhotosOptions {
  std::string path;           ///< folder; made if it is not there
  std::uint32_t count = 256;  ///< images of both splits together
  int classes = 8;            ///< 1 to 1000; every split has an image of each
  std::uint64_t seed = 0;
  int quality = 90;    ///< JPEG quality, 4:2:0
  int threads = 0;     ///< 0: one a core
  bool force = false;  ///< write over what is there
  Progress progress;
};

/// Writes train/CLASS/*.jpg and test/CLASS/*.jpg, one image in five for test. What is there
/// already is left alone if it is exactly what would be written; else, without `force`, RunError
/// says what is in the way. RunError for a full disk too.
void make_photos(const PhotosOptions& options);

}  // namespace millrace::tools
