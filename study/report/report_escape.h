// Text that came from data, made harmless for the place where it is put.
#pragma once

#include <string>
#include <string_view>

namespace millrace::study {

/// Well-formed UTF-8: what is not becomes U+FFFD, control characters but tab and newline too.
std::string clean_utf8(std::string_view text);
/// For an element's text and for attributes in either kind of quotes.
std::string html_escaped(std::string_view text);
/// JSON that may stand inside <script>: no <, > or & (so no end tag and no comment begins in it),
/// no U+2028 or U+2029; it is still the same JSON.
std::string script_json(std::string_view json);
/// Inline Markdown and a cell of a table: on one line, nothing of it is taken for markup.
std::string markdown_escaped(std::string_view text);
/// A field of RFC 4180: in quotes where it has to be.
std::string csv_field(std::string_view text);
/// RFC 4648, section 4.
std::string base64(std::string_view bytes);

}  // namespace millrace::study
