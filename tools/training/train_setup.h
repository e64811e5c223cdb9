// The trainer's options from a recipe, and checks that fail before a run starts.
#pragma once

#include <cstdint>
#include <string>

#include "millrace/reader.h"
#include "millrace/recipe.h"
#include "millrace/transform.h"
#include "strategies/trainer/trainer.h"

namespace millrace::tools {

/// Returns the options that the recipe names. The caller sets the batch, which depends on the
/// ranks.
train::TrainOptions train_options(const Recipe& recipe);

/// Builds the trainer's schedule for epochs of `samples`, to throw what is wrong with it.
void check_schedule(const train::TrainOptions& options, std::uint64_t samples);

/// Throws UsageError for early stopping where nothing is evaluated.
void check_early_stopping(const Recipe& recipe);

/// Throws DataError for an evaluation set with other classes or channels than the training set, and
/// UsageError for samples of another size if `model` takes one size.
void check_evaluation(const Reader& train, const Reader& eval, const SampleSpec& sample,
                      const SampleSpec& eval_sample, const std::string& model);

}  // namespace millrace::tools
