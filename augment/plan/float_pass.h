// Passes over images of floats, for recipes with decode.depth: any number of channels, the same
// geometry as resample(). Plain arithmetic in one order, so that the result has the same bytes on
// every machine and at every SIMD level (determinism contract).
#pragma once

#include <cstddef>
#include <cstdint>

#include "augment/kernels/pass.h"
#include "millrace/buffer.h"

namespace millrace::augment {

/// Working memory of one thread.
struct FloatScratch {
  Buffer source;   ///< the source's region as floats
  Buffer taps;     ///< weights of a reduction
  Buffer rows;     ///< a row between the two axes of a reduction
  Buffer reduced;  ///< a reduction's output before flips and bounds
};

/// Returns the region of `image` as floats, in a view of the whole image of which only the region
/// may be read: levels as fractions of full scale, floats as they are.
ImageView to_floats(const ImageView& image, const Rect& region, Buffer& memory);

/// Writes the pass's output as interleaved floats. The pass's source has Depth::f32. A fill is its
/// level as a fraction of 255; the fourth one serves all channels from the fourth on.
void resample(const Pass& pass, float* out, FloatScratch& scratch);

}  // namespace millrace::augment
