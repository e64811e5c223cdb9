// Runs one pass. All coordinates are fixed point and every level is a whole number, so the result
// has the same bytes on every machine and at every SIMD level (determinism contract).
#pragma once

#include <cstddef>
#include <cstdint>

#include "augment/plan/pass.h"
#include "augment/plan/store.h"
#include "millrace/buffer.h"

namespace millrace::augment {

/// Working memory of one thread. It grows with the first samples and is kept.
struct ResampleScratch {
  Buffer tile;       ///< levels on their way to the store; fits the first-level cache
  Buffer positions;  ///< a row of positions that are not linear
  Buffer taps;       ///< weights of a reduction
  Buffer windows;    ///< the same weights in the order of vector kernels
  Buffer rows;       ///< rows between the two axes of a reduction
  Buffer packed;     ///< a source whose strides the kernels do not read
  Buffer turned;     ///< a reduction's output before it is turned by 90 degrees
};

/// Writes the pass's output through `store` to `out`, in the store's layout without gaps
/// (size_of(dtype) bytes per element). `tables`, if not null, holds one table per channel that is
/// applied to levels first: pointwise ops behind the pass.
void resample(const Pass& pass, const Store& store, std::byte* out, ResampleScratch& scratch,
              const LevelTable* tables = nullptr);

/// Writes the pass's output as interleaved 8-bit pixels, for a next pass or op. Writes nothing
/// behind the last pixel, but kernels that read it next need kTailSlack bytes there (Buffer has
/// them).
void resample(const Pass& pass, std::uint8_t* out, ResampleScratch& scratch,
              const LevelTable* tables = nullptr);

}  // namespace millrace::augment
