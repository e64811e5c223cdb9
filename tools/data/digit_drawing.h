// Draws one handwriting-like digit: smooth curves, jittered and slanted, with a soft pen. Uses only
// + - * / and sqrt on doubles, so that every machine draws equal bytes.
#pragma once

#include <cstdint>
#include <span>

#include "base/rng.h"

namespace millrace::tools {

inline constexpr int kDigitSide = 28;  ///< in pixels, as in MNIST
inline constexpr int kDigitPixels = kDigitSide * kDigitSide;

/// Draws digit `label` (0 to 9) white on black, varied by `draw`.
void draw_digit(int label, Draw& draw, std::span<std::uint8_t, kDigitPixels> pixels);

}  // namespace millrace::tools
