// Bounds the nesting depth of a TOML text before it is parsed: toml++ recurses for every level, and
// a key of 50,000 parts would overflow the stack.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/private_api.h"

namespace millrace::pipeline {

/// Limit on the parts of a key, and on nested brackets. A recipe needs three of either.
constexpr std::size_t kDeepestToml = 32;

/// Returns the number of the line that nests deeper than kDeepestToml, or 0 if none does.
MILLRACE_PRIVATE_API std::size_t line_nested_too_deep(std::string_view toml);

}  // namespace millrace::pipeline
