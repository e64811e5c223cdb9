// Captures the text that OpenCV's codecs write to std::cerr, for the error that names the file.
#pragma once

#include <string>

namespace imgcodecs {

/// Captures this thread's output to std::cerr as long as it lives; other threads' output is not
/// affected.
class ErrorText {
 public:
  ErrorText();
  ~ErrorText();
  ErrorText(const ErrorText&) = delete;
  ErrorText& operator=(const ErrorText&) = delete;

  /// Returns OpenCV's reason in one line, or nothing.
  std::string reason() const;

 private:
  std::string text_;
};

}  // namespace imgcodecs
