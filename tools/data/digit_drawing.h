// One handwriting-like digit: strokes as smooth curves, jittered, slanted, drawn with a soft pen.
// Only + - * / and sqrt on doubles, so that every machine draws the same bytes.
#pragma once

#include <cstdint>
#include <span>

#include "base/rng.h"

namespace millrace::tools {

inline constexpr int kDigitSide = 28;  ///< pixels, as in MNIST
inline constexpr int kDigitPixels = kDigitSide * kDigitSide;

/// Draws digit `label` (0 to 9), white on black, the way that `draw` decides.
void draw_digit(int label, Draw& draw, std::span<std::uint8_t, kDigitPixels> pixels);

}  // namespace millrace::tools
