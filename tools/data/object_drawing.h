// One made-up thumbnail of a coloured object before a background: what a network for CIFAR-10 can
// learn on, and only by shape, because colours say nothing about the class.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "millrace/millrace.hpp"

namespace millrace::tools {

inline constexpr int kObjectSide = 32;
inline constexpr std::size_t kObjectPixels = std::size_t{3} * kObjectSide * kObjectSide;

/// A class each; the label is the place in the list.
inline constexpr std::array<const char*, 10> kObjectNames{
    "disc", "square", "triangle", "ring", "cross", "bars", "moon", "star", "frame", "dots"};

/// Writes planar RGB (CIFAR's order). `draw` decides place, size, angle, colours and noise.
void draw_object(int label, Draw& draw, std::span<std::uint8_t, kObjectPixels> pixels);

}  // namespace millrace::tools
