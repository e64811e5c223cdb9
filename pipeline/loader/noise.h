// Contents of batches with loader.mode=synthetic: noise of the right shape, type and labels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "millrace/reader.h"
#include "millrace/transform.h"
#include "pipeline/loader/slot.h"

namespace millrace::pipeline {

/// Fills a slot with `samples` samples. Elements have random signs and mantissas, and magnitudes
/// from 1/8 up to 2 (u8: any byte); labels count through the classes. Equal seeds give equal
/// contents.
void fill_with_noise(Slot& slot, std::uint64_t seed, std::size_t samples,
                     const Transform& transform, const DatasetInfo& dataset);

}  // namespace millrace::pipeline
