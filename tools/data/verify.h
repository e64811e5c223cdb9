// Recognises a data set and finds everything wrong with it: headers, counts, labels, and every
// image decoded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/image.h"
#include "millrace/limits.h"
#include "tools/data/parallel.h"

namespace millrace::tools {

struct VerifyOptions {
  std::string path;
  int classes = 0;  ///< labels must be less than this; 0: as the set says
  std::uint64_t max_pixels = kMaxPixels;
  int threads = 0;  ///< 0: one per core
  Progress progress;
};

struct VerifyProblem {
  std::string where;  ///< a file, or a file and a position in it; empty if `what` names it
  std::string what;
};

struct VerifySplit {
  std::string name;                         ///< "train", "test"
  std::uint64_t count = 0;                  ///< number of samples
  std::vector<std::string> classes;         ///< class names
  std::vector<std::uint64_t> class_counts;  ///< number of samples per class
  Size smallest, largest;                   ///< minimum and maximum of width and of height
  std::uint64_t fingerprint = 0;
};

struct VerifyReport {
  std::string kind;  ///< "idx", "cifar", "folder", "tar", "manifest"
  std::vector<VerifySplit> splits;
  std::vector<VerifyProblem> problems;  ///< all of them; empty: the set is sound
};

/// Verifies a data set. Continues after a problem, except in an archive or a manifest. Throws
/// DataError only if `path` does not exist.
VerifyReport verify_data(const VerifyOptions& options);

}  // namespace millrace::tools
