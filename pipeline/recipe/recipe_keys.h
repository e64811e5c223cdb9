// Recipe keys: each room declares its own, and recipe_keys.cpp joins them. The lists of rooms above
// this one are linked into libmillrace_pipeline too, which checks whole recipes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "millrace/param.h"

namespace millrace::pipeline {

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
