// The generated stand-in for CIFAR-10: the same binary files and shapes, drawn objects that a
// network learns but not at a glance, the same bytes on every machine for the same seed.
#pragma once

#include <cstdint>
#include <string>

#include "tools/data/parallel.h"

namespace millrace::tools {

struct ObjectsOptions {
  std::string path;              ///< folder; made if it is not there
  std::uint32_t train = 50'000;  ///< images, at least five: they are spread over five files
  std::uint32_t test = 10'000;
  std::uint64_t seed = 0;
  int threads = 0;     ///< 0: one a core
  bool force = false;  ///< write over what is there
  Progress progress;
};

/// Writes data_batch_1.bin to data_batch_5.bin, test_batch.bin and batches.meta.txt. What is there
/// already is left alone if it is exactly what would be written; else, without `force`, RunError
/// says what is in the way. RunError for a full disk too.
void make_objects(const ObjectsOptions& options);

}  // namespace millrace::tools
