// Copies pixels from a view to a canvas unchanged, whatever the strides of both.
#pragma once

#include "augment/kernels/kernels.h"

namespace millrace::augment {

/// Sets canvas(x, y) = view(x, y) for the pixels of `rect`.
void move_pixels(const Kernels& kernels, const ImageView& view, const Rect& rect,
                 const Canvas& canvas);

/// Sets all pixels of `rect` to `fill`.
void paint(const Kernels& kernels, const Rect& rect, const Fill& fill, const Canvas& canvas);

}  // namespace millrace::augment
