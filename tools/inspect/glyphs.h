// The font of contact sheets: ASCII in 5x7 pixels.
#pragma once

#include <cstdint>

namespace millrace::tools {

inline constexpr int kGlyphWidth = 5, kGlyphHeight = 7;

/// Returns whether the glyph of `character` has a dot at column x of row y. Characters other than
/// those from ' ' to '~' are boxes.
bool has_dot(char character, int x, int y);

}  // namespace millrace::tools
