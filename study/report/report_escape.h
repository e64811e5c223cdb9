// Escapes text that came from data, for each place where a report puts it.
#pragma once

#include <string>
#include <string_view>

namespace millrace::study {

/// Returns well-formed UTF-8. Invalid bytes, and control characters except tab and newline, become
/// U+FFFD.
std::string clean_utf8(std::string_view text);
/// Escapes for an element's text and for attributes in either kind of quotes.
std::string html_escaped(std::string_view text);
/// Escapes JSON for a <script> element: without <, > or & (so it cannot end the element or begin a
/// comment) and without U+2028 or U+2029. The value stays the same.
std::string script_json(std::string_view json);
/// Escapes for inline Markdown and table cells: one line, no markup.
std::string markdown_escaped(std::string_view text);
/// Returns a field as in RFC 4180, quoted if necessary.
std::string csv_field(std::string_view text);
/// Encodes as in RFC 4648, section 4.
std::string base64(std::string_view bytes);

}  // namespace millrace::study
