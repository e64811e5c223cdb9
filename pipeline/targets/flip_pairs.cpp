// Parses and checks pairs of key points.
#include "pipeline/targets/flip_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "millrace/error.h"

namespace millrace::pipeline {

FlipPairs parse_flip_pairs(const std::string& text) {
  const auto number = [&](std::string_view digits) -> std::size_t {
    std::uint32_t value = 0;
    const char* const end = digits.data() + digits.size();
    if (const auto [stop, status] = std::from_chars(digits.data(), end, value);
        status == std::errc() && stop == end)
      return value;
    throw UsageError(fmt::format("targets.flip_pairs={} is no list of pairs", text),
                     "write pairs of key points, numbered from 0, such as 1-2,3-4");
  };
  FlipPairs pairs;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view pair = rest.substr(0, rest.find(','));
    const std::size_t left = std::min(pair.find('-'), pair.size());
    pairs.emplace_back(number(pair.substr(0, left)),
                       number(pair.substr(std::min(left + 1, pair.size()))));
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
  }
  return pairs;
}

void check_flip_pairs(const FlipPairs& pairs, std::size_t points) {
  std::vector<bool> named(points);
  for (const auto& [left, right] : pairs)
    for (const std::size_t point : {left, right}) {
      if (point >= points)
        throw UsageError(fmt::format("targets.flip_pairs names key point {}, and an object has {}",
                                     point, points),
                         "key points count from 0");
      if (named[point])
        throw UsageError(fmt::format("targets.flip_pairs names key point {} twice", point),
                         "give each key point one partner");
      named[point] = true;
    }
}

}  // namespace millrace::pipeline
