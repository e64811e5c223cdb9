// Suggestions for "did you mean ...?": the nearest valid name.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::base {

/// Returns the number of insertions, deletions, substitutions and swaps of neighbours between two
/// words.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> two(b.size() + 1), one(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) one[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({one[j] + 1, row[j - 1] + 1, one[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], two[j - 2] + 1);
    }
    two = one;
    one = row;
  }
  return one[b.size()];
}

/// Returns the candidate nearest to `name`, and the first of several.
template <class Names>
std::string nearest(std::string_view name, const Names& candidates) {
  constexpr std::size_t kLongestName = 256;  // anything longer is not a typing error
  name = name.substr(0, kLongestName);
  std::string best;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const auto& candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace millrace::base
