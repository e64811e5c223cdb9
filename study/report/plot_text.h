// Text for plots: draws any name literally and without side effects.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace millrace::study {

/// Returns UTF-8 on one line. Line ends and tabs become spaces; other control characters, invalid
/// UTF-8 and characters that XML forbids become U+FFFD.
std::string drawable(std::string_view text);
/// Counts the letters (code points) of UTF-8.
std::size_t letters(std::string_view text);
/// Returns the first `most` letters; the last one is an ellipsis if there are more.
std::string shortened(std::string_view text, std::size_t most);

/// Returns `text`, made drawable, as a gnuplot literal. Needs `set terminal ... noenhanced`.
std::string gnuplot_text(std::string_view text);
/// Returns gnuplot_text() for a tic's label, in which gnuplot looks for number formats.
std::string gnuplot_tic(std::string_view text);
/// Returns an expression that draws `text` in lines of at most `most` letters, broken between words
/// if possible.
std::string gnuplot_lines(std::string_view text, std::size_t most);

}  // namespace millrace::study
