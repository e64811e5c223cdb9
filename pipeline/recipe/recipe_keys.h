// Recipe keys: those of all rooms, and hints for keys that no recipe has.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/private_api.h"
#include "millrace/param.h"

namespace millrace::pipeline {

// Recipe keys: each room declares its own, and recipe_keys.cpp joins them. The lists of rooms above
// this one are linked into libmillrace_pipeline too, which checks whole recipes.

/// Returns the keys of this room: the recipe's name, seed, [plugins], [data], [decode], [loader].
std::vector<Param> pipeline_keys();

/// Registers a plugin's reader: a choice of data.reader, and a key data.READER.NAME for each of its
/// parameters. Existing recipes do not see them.
void add_reader_keys(const std::string& reader, std::span<const Param> params);

}  // namespace millrace::pipeline

namespace millrace::augment {

/// Returns `resample` and [output].
std::vector<Param> plan_keys();

}  // namespace millrace::augment

namespace millrace::train {

/// Returns [model].
std::vector<Param> model_keys();
/// Returns [train], [simulated] and [eval].
std::vector<Param> train_keys();
/// Returns [debug].
std::vector<Param> debug_keys();

}  // namespace millrace::train

namespace millrace::study {

/// Returns [sweep].
std::vector<Param> sweep_keys();

}  // namespace millrace::study

namespace millrace::tools {

/// Returns [bench].
std::vector<Param> bench_keys();

}  // namespace millrace::tools

// Hints for keys that no recipe has: near names, and names that other trainers use.

namespace millrace::pipeline {

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

}  // namespace millrace::pipeline
