// Makes text from outside (names of files and classes, messages of plugins) safe to print on a
// terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace millrace::base {

/// Returns `text` on one line without characters that a terminal acts on. Line ends, tabs and
/// carriage returns become \n, \t and \r. Other control characters, and the marks that change the
/// writing direction, become \u001b and the like; bytes that are not UTF-8 become \x9b and the
/// like. Inside JSON these are its own escapes, so that a document keeps its meaning.
std::string printable(std::string_view text);
/// Returns the same as printable(), but keeps line ends and tabs.
std::string printable_lines(std::string_view text);

/// Returns `text` without the middle of every word of more than 512 bytes, and without its own
/// middle if it is still longer than 4096 bytes. A value of megabytes in a message stays readable.
/// Keeps UTF-8 valid.
std::string abridged(std::string_view text);

}  // namespace millrace::base
