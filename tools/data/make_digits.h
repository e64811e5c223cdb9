// Draws one handwriting-like digit: smooth curves, jittered and slanted, with a soft pen. Uses only
// + - * / and sqrt on doubles, so that every machine draws equal bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/rng.h"
#include "tools/data/parallel.h"

namespace millrace::tools {

inline constexpr int kDigitSide = 28;  ///< in pixels, as in MNIST
inline constexpr int kDigitPixels = kDigitSide * kDigitSide;

/// Draws digit `label` (0 to 9) white on black, varied by `draw`.
void draw_digit(int label, Draw& draw, std::span<std::uint8_t, kDigitPixels> pixels);

// Generated replacement for MNIST: the same files and shapes, with digits that a LeNet learns,
// though not at once. Equal seeds give equal bytes on every machine.

struct DigitsOptions {
  std::string path;              ///< folder, created if necessary
  std::uint32_t train = 60'000;  ///< number of images
  std::uint32_t test = 10'000;
  std::uint64_t seed = 0;
  int threads = 0;     ///< 0: one per core
  bool force = false;  ///< overwrite existing files
  Progress progress;
};

/// Writes four plain IDX files. Keeps an existing file if it is identical; otherwise, without
/// `force`, throws RunError with the file in the way. Throws RunError for a full disk too.
void make_digits(const DigitsOptions& options);

}  // namespace millrace::tools
