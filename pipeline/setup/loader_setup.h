// Translates a recipe to the options of a loader.
#pragma once

#include <cstdint>
#include <memory>

#include "base/private_api.h"
#include "millrace/loader.h"
#include "millrace/reader.h"
#include "millrace/recipe.h"
#include "pipeline/readers/storage.h"

namespace millrace::pipeline {

/// Returns whether loader.workers=auto.
MILLRACE_PRIVATE_API bool has_auto_workers(const Recipe& recipe);
/// Returns loader.workers; for auto, the initial number: half of the cores.
MILLRACE_PRIVATE_API int first_workers(const Recipe& recipe);

/// Returns the samples per batch over all `world` ranks.
MILLRACE_PRIVATE_API std::int64_t global_batch(const Recipe& recipe, int world);
/// Returns the order of loader.shuffle, or that of sampler.kind=sequential.
MILLRACE_PRIVATE_API Shuffle shuffle_of(const Recipe& recipe);
/// Returns [loader], [sampler] and [data], seed included, for one of `world` ranks. io_threads is
/// the resolved number, and batch the size over all ranks. Throws UsageError as check_mode() does.
MILLRACE_PRIVATE_API LoaderOptions loader_options(const Recipe& recipe,
                                                  std::shared_ptr<StorageModel> storage,
                                                  int rank = 0, int world = 1);

/// Throws UsageError if loader.mode would leave other keys of the recipe without effect.
MILLRACE_PRIVATE_API void check_mode(const Recipe& recipe);

/// Returns the options for evaluation: in order, unaugmented, nothing dropped. Ranks share its
/// batches equally.
MILLRACE_PRIVATE_API LoaderOptions eval_loader_options(const Recipe& recipe, const Reader& reader,
                                                       std::shared_ptr<StorageModel> storage,
                                                       int rank = 0, int world = 1);

}  // namespace millrace::pipeline
