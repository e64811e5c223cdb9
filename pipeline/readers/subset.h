// A part of a data set's samples: some of each class, those that a file lists, or a fold.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "millrace/reader.h"

namespace millrace::pipeline {

/// Parses `data.fold`, "K/N" with 1 <= K <= N and N >= 2. Throws UsageError.
Fold parse_fold(const std::string& text);

/// Returns the split that a reader opens in place of `options.split`: with a fold, "test" is a part
/// of "train".
std::string source_split(const DataOptions& options);

/// Returns a reader of the samples that `options.fold`, `options.listed` and `options.fraction`
/// choose, in the set's order, or `whole` itself if they choose all. A sample's index counts in
/// what was chosen. Which samples these are depends on the data set's labels alone, not on the
/// run's seed. Throws UsageError if nothing is left, and for a list that names a sample twice or
/// one that does not exist.
std::unique_ptr<Reader> choose_subset(std::unique_ptr<Reader> whole, const DataOptions& options);

}  // namespace millrace::pipeline
