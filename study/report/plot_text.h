// Text for plots: whatever a name holds, it is drawn as it stands and does nothing else.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace millrace::study {

/// UTF-8 on one line: line ends and tabs become spaces; other control characters, and what is not
/// UTF-8 or can't stand in XML, become U+FFFD.
std::string drawable(std::string_view text);
/// Letters (code points) of UTF-8.
std::size_t letters(std::string_view text);
/// The first `most` letters; the last one is an ellipsis if there are more.
std::string shortened(std::string_view text, std::size_t most);

/// `text`, made drawable, as a literal of gnuplot's. It is drawn as it stands behind `set terminal
/// ... noenhanced`.
std::string gnuplot_text(std::string_view text);
/// The same for the label of a tic, where gnuplot looks for a number's format.
std::string gnuplot_tic(std::string_view text);
/// The same in lines of at most `most` letters, where words allow it: an expression.
std::string gnuplot_lines(std::string_view text, std::size_t most);

}  // namespace millrace::study
