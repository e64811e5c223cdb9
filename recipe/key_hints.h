// Hints for keys that no recipe has: near names, and names that other trainers use.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/private_api.h"

namespace millrace::recipe {

/// A name that other trainers use, in lower case with '_' between words, and what millrace has for
/// it: a key ("loader.workers"), or a sentence.
struct FamiliarName {
  std::string_view name;
  std::string_view answer;
};

/// Returns all of them.
MILLRACE_PRIVATE_API std::span<const FamiliarName> familiar_names();

/// Returns what millrace has for a name of PyTorch, Lightning, timm or torchrun, such as
/// "num_workers" or "batch-size": a key ("loader.workers"), or a sentence. Empty if the name is not
/// known.
MILLRACE_PRIVATE_API std::string_view answer_to_familiar(std::string_view name);

/// Returns whether such an answer is a recipe key.
MILLRACE_PRIVATE_API bool is_key(std::string_view answer);

/// Returns the keys of `names` that may be meant by `key`, best first; never empty if `names` is
/// not. The last part counts too: "workers" gives loader.workers, "epochs" train.epochs and
/// bench.epochs.
MILLRACE_PRIVATE_API std::vector<std::string> near_keys(std::string_view key,
                                                        std::span<const std::string> names);

/// Returns the hint for the unknown `key`: "did you mean loader.workers?".
MILLRACE_PRIVATE_API std::string hint_for_key(std::string_view key,
                                              std::span<const std::string> names);

}  // namespace millrace::recipe
