// Draws a thumbnail of a coloured object on a background. A network for CIFAR-10 can learn it by
// shape only, because colours are independent of the class.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "millrace/millrace.hpp"
#include "tools/data/parallel.h"

namespace millrace::tools {

inline constexpr int kObjectSide = 32;
inline constexpr std::size_t kObjectPixels = std::size_t{3} * kObjectSide * kObjectSide;

/// Class names; a label is an index into the list.
inline constexpr std::array<const char*, 10> kObjectNames{
    "disc", "square", "triangle", "ring", "cross", "bars", "moon", "star", "frame", "dots"};

/// Writes planar RGB (CIFAR's order). `draw` decides position, size, angle, colours and noise.
void draw_object(int label, Draw& draw, std::span<std::uint8_t, kObjectPixels> pixels);

// Generated replacement for CIFAR-10: the same binary files and shapes, with drawn objects that a
// network learns, though not at once. Equal seeds give equal bytes on every machine.

struct ObjectsOptions {
  std::string path;              ///< folder, created if necessary
  std::uint32_t train = 50'000;  ///< number of images, at least five: they fill five files
  std::uint32_t test = 10'000;
  std::uint64_t seed = 0;
  int threads = 0;     ///< 0: one per core
  bool force = false;  ///< overwrite existing files
  Progress progress;
};

/// Writes data_batch_1.bin to data_batch_5.bin, test_batch.bin and batches.meta.txt. Keeps an
/// existing file if it is identical; otherwise, without `force`, throws RunError with the file in
/// the way. Throws RunError for a full disk too.
void make_objects(const ObjectsOptions& options);

}  // namespace millrace::tools
