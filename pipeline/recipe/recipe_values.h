// Reads a recipe's text as a flat list of keys, to compare it with others. Needs no plugin and no
// declaration, so it reads recipes of any version.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/private_api.h"

namespace millrace::pipeline {

/// Returns dotted keys with their values as TOML, in the order of the text: loader.workers, 2. An
/// entry of [[augment]] gives augment.ID.NAME, and the chain's order is under augment. Throws
/// DataError that names `where` if the text is not TOML.
MILLRACE_PRIVATE_API std::vector<std::pair<std::string, std::string>> recipe_values(
    const std::string& toml, const std::string& where);

}  // namespace millrace::pipeline
