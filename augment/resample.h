// Carries out one folded pass. All coordinates are fixed point and every level is a whole number,
// so the result has the same bits on every machine (contract C1).
#pragma once

#include <cstddef>
#include <cstdint>

#include "augment/fold.h"
#include "augment/store.h"

namespace millrace {

/// Writes the pass's output through `store` to `out` (its layout, densely).
void resample(const Pass& pass, const Store& store, std::byte* out);

/// Writes it as interleaved 8-bit pixels, for a next pass.
void resample(const Pass& pass, std::uint8_t* out);

}  // namespace millrace
