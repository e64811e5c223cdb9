// A bound on how deep a TOML text nests, looked for before it is parsed: toml++ calls itself for
// every level, and a key of 50,000 parts would be the end of the stack.
#pragma once

#include <cstddef>
#include <string_view>

namespace millrace::pipeline {

/// Parts of a key, and brackets within brackets. A recipe has three of either.
constexpr std::size_t kDeepestToml = 32;

/// The number of the line that nests deeper than kDeepestToml; 0 where none does.
std::size_t line_nested_too_deep(std::string_view toml);

}  // namespace millrace::pipeline
