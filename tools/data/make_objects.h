// Generated replacement for CIFAR-10: the same binary files and shapes, with drawn objects that a
// network learns, though not at once. Equal seeds give equal bytes on every machine.
#pragma once

#include <cstdint>
#include <string>

#include "tools/data/parallel.h"

namespace millrace::tools {

struct ObjectsOptions {
  std::string path;              ///< folder, created if necessary
  std::uint32_t train = 50'000;  ///< number of images, at least five: they fill five files
  std::uint32_t test = 10'000;
  std::uint64_t seed = 0;
  int threads = 0;     ///< 0: one per core
  bool force = false;  ///< overwrite existing files
  Progress progress;
};

/// Writes data_batch_1.bin to data_batch_5.bin, test_batch.bin and batches.meta.txt. Keeps an
/// existing file if it is identical; otherwise, without `force`, throws RunError with the file in
/// the way. Throws RunError for a full disk too.
void make_objects(const ObjectsOptions& options);

}  // namespace millrace::tools
