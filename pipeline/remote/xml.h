// Reads the little XML that an object store answers with: elements and text. Attributes are
// skipped; what such answers never hold (a document type, CDATA, other entities than the five
// predefined ones) is refused.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/private_api.h"

namespace millrace::pipeline {

/// Walks a document. `path()` names where it stands: "/ListBucketResult/Contents/Key".
class MILLRACE_PRIVATE_API XmlReader {
 public:
  enum class Event { open, close, end };

  /// `text` must outlive the reader.
  explicit XmlReader(std::string_view text) : left_(text) {}

  /// Moves to the next begin or end of an element. Throws DataError for text that is not
  /// well-formed or nested deeper than 16 elements.
  Event next();
  /// Returns the path of the element that was opened or closed last, without namespaces' prefixes.
  const std::string& path() const { return path_; }
  /// At Event::close, returns the text of an element that holds no other ones.
  const std::string& text() const { return text_; }

 private:
  Event close(std::string_view name);
  Event open(std::string_view name, bool empty);
  void add_text(std::string_view raw);
  std::string_view take_until(std::string_view end);

  std::string_view left_;
  std::string path_;
  std::string text_;
  int depth_ = 0;
  bool leave_ = false;       ///< the element of path_ has been closed
  bool close_next_ = false;  ///< an empty element was opened
  bool rooted_ = false;      ///< the root element has been opened
};

/// Returns the text of the first element at `path`, or none. Never throws: text that is not XML
/// holds no element.
MILLRACE_PRIVATE_API std::optional<std::string> xml_text(std::string_view xml,
                                                         std::string_view path);

}  // namespace millrace::pipeline
