// Draws a thumbnail of a coloured object on a background. A network for CIFAR-10 can learn it by
// shape only, because colours are independent of the class.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "millrace/millrace.hpp"

namespace millrace::tools {

inline constexpr int kObjectSide = 32;
inline constexpr std::size_t kObjectPixels = std::size_t{3} * kObjectSide * kObjectSide;

/// Class names; a label is an index into the list.
inline constexpr std::array<const char*, 10> kObjectNames{
    "disc", "square", "triangle", "ring", "cross", "bars", "moon", "star", "frame", "dots"};

/// Writes planar RGB (CIFAR's order). `draw` decides position, size, angle, colours and noise.
void draw_object(int label, Draw& draw, std::span<std::uint8_t, kObjectPixels> pixels);

}  // namespace millrace::tools
