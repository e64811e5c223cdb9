// What a data set is, and everything that is wrong with it: headers, counts, labels, and every
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
  int classes = 0;  ///< labels must lie below this; 0: whatever the set says
  std::uint64_t max_pixels = kMaxPixels;
  int threads = 0;  ///< 0: one a core
  Progress progress;
};

struct VerifyProblem {
  std::string where;  ///< a file, or a file and a place in it; empty when `what` names it
  std::string what;
};

struct VerifySplit {
  std::string name;                         ///< "train", "test"
  std::uint64_t count = 0;                  ///< samples
  std::vector<std::string> classes;         ///< names
  std::vector<std::uint64_t> class_counts;  ///< samples of each
  Size smallest, largest;                   ///< least and greatest width and height met
  std::uint64_t fingerprint = 0;
};

struct VerifyReport {
  std::string kind;  ///< "idx", "cifar", "folder", "tar", "manifest"
  std::vector<VerifySplit> splits;
  std::vector<VerifyProblem> problems;  ///< all of them; empty: the set is sound
};

/// Goes on after a problem; an archive or a manifest is given up at its first one. Throws DataError
/// only when there is nothing at `path`.
VerifyReport verify_data(const VerifyOptions& options);

}  // namespace millrace::tools
