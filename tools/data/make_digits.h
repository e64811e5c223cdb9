// Generated replacement for MNIST: the same files and shapes, with digits that a LeNet learns,
// though not at once. Equal seeds give equal bytes on every machine.
#pragma once

#include <cstdint>
#include <string>

#include "tools/data/parallel.h"

namespace millrace::tools {

struct DigitsOptions {
  std::string path;              ///< folder, created if necessary
  std::uint32_t train = 60'000;  ///< number of images
  std::uint32_t test = 10'000;
  std::uint64_t seed = 0;
  int threads = 0;     ///< 0: one per core
  bool force = false;  ///< overwrite existing files
  Progress progress;
};

/// Writes four plain IDX files. Keeps an existing file if it is identical; otherwise, without
/// `force`, throws RunError with the file in the way. Throws RunError for a full disk too.
void make_digits(const DigitsOptions& options);

}  // namespace millrace::tools
