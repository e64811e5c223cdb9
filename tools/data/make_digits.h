// The generated stand-in for MNIST: the same files and shapes, digits that a LeNet learns but not
// at a glance, the same bytes on every machine for the same seed.
#pragma once

#include <cstdint>
#include <string>

#include "tools/data/parallel.h"

namespace millrace::tools {

struct DigitsOptions {
  std::string path;              ///< folder; made if it is not there
  std::uint32_t train = 60'000;  ///< images
  std::uint32_t test = 10'000;
  std::uint64_t seed = 0;
  int threads = 0;     ///< 0: one a core
  bool force = false;  ///< write over what is there
  Progress progress;
};

/// Writes four plain IDX files. What is there already is left alone if it is exactly what would be
/// written; else, without `force`, RunError says what is in the way. RunError for a full disk too.
void make_digits(const DigitsOptions& options);

}  // namespace millrace::tools
