// Decodes BMP with OpenCV, whose exceptions become messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "millrace/millrace.h"

namespace imgcodecs {

// Captures the text that OpenCV's codecs write to std::cerr, for the error that names the file.

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

// Decodes BMP with OpenCV.

/// Implement millrace_decoder's functions of these names.
void* open_bmp(const void*);
/// Decodes a whole image whose header was read.
millrace_status decode_bmp(void* context, const std::uint8_t* bytes, std::size_t size,
                           const millrace_decode* request, std::uint8_t* pixels,
                           std::size_t row_bytes, millrace_call* call);

}  // namespace imgcodecs
