// A recipe's text as a flat list of keys, to compare it with others: no plugin and no declaration
// is needed, so recipes of any version can be read.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace millrace::pipeline {

/// Dotted keys and values as TOML, in the order of the text: loader.workers, 2. An entry of
/// [[augment]] gives augment.ID.NAME; the chain's order stands under augment. Throws DataError,
/// naming `where`, for a text that is no TOML.
std::vector<std::pair<std::string, std::string>> recipe_values(const std::string& toml,
                                                               const std::string& where);

}  // namespace millrace::pipeline
