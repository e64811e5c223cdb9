// Text from outside (names of files and classes, a plugin's words), made safe for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace millrace::base {

/// `text` on one line, without anything that a terminal obeys: line ends, tabs and carriage returns
/// become \n, \t and \r, other control characters and the marks that turn the direction of writing
/// \u001b and the like, bytes that are not UTF-8 \x9b. Inside of JSON these are its own escapes, so
/// that a document stays the same document.
std::string printable(std::string_view text);
/// Like printable(), but keeps line ends and tabs.
std::string printable_lines(std::string_view text);

/// `text` with the middle of every word of more than 512 bytes left out, and its own middle where
/// it still is longer than 4096: a value of megabytes in a message stays readable. Takes UTF-8 and
/// leaves UTF-8.
std::string abridged(std::string_view text);

}  // namespace millrace::base
