// Key points that exchange their places in mirrored images, as a left and a right eye do.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/private_api.h"

namespace millrace::pipeline {

using FlipPairs = std::vector<std::pair<std::size_t, std::size_t>>;

/// Parses `targets.flip_pairs`: "1-2,3-4", where key points count from 0. Throws UsageError.
MILLRACE_PRIVATE_API FlipPairs parse_flip_pairs(const std::string& text);

/// Throws UsageError if a pair names a key point that objects of `points` key points do not have,
/// or one that another pair names too.
void check_flip_pairs(const FlipPairs& pairs, std::size_t points);

}  // namespace millrace::pipeline
