// Colour adjustments of 8-bit images, each with torchvision's arithmetic on 8-bit tensors: single
// precision in the same order, results cut off to whole levels. Gray images have no saturation and
// no hue: these leave them as they are.
#pragma once

#include "augment/kernels/kernels.h"
#include "millrace/millrace.hpp"

namespace millrace::augment {

/// What level * factor becomes.
void brightness_table(float factor, LevelTable& table);

/// Each level times `factor`.
void adjust_brightness(const Image& image, double factor);
/// Away from (above 1) or towards (below 1) the mean gray of the image.
void adjust_contrast(const Image& image, double factor);
/// Away from or towards each pixel's own gray.
void adjust_saturation(const Image& image, double factor);
/// Turns the hue by `turn`, a part of the full circle in [-0.5, 0.5].
void adjust_hue(const Image& image, double turn);
/// All channels become 0.2989 R + 0.587 G + 0.114 B.
void to_gray(const Image& image);

}  // namespace millrace::augment
