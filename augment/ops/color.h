// Colour adjustments of 8-bit images with torchvision's arithmetic on 8-bit tensors: single
// precision in the same order, truncated to whole levels. Gray images have no saturation and no
// hue, so those adjustments leave them unchanged.
#pragma once

#include "augment/kernels/kernels.h"
#include "millrace/millrace.hpp"

namespace millrace::augment {

/// Fills `table` with level * factor.
void brightness_table(float factor, LevelTable& table);

/// Multiplies each level by `factor`.
void adjust_brightness(const Image& image, double factor);
/// Moves levels away from (factor above 1) or towards (below 1) the mean gray level of the image.
void adjust_contrast(const Image& image, double factor);
/// Moves levels away from or towards each pixel's own gray level.
void adjust_saturation(const Image& image, double factor);
/// Turns the hue by `turn`, a fraction of the full circle in [-0.5, 0.5].
void adjust_hue(const Image& image, double turn);
/// Sets all channels to 0.2989 R + 0.587 G + 0.114 B.
void to_gray(const Image& image);

}  // namespace millrace::augment
