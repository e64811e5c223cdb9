// Decodes BMP with OpenCV, which knows its many variants, and says what its exceptions mean.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <limits>
#include <mutex>
#include <opencv2/core/utility.hpp>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <streambuf>
#include <string>
#include <string_view>

#include "plugins/imgcodecs/format.h"

namespace imgcodecs {
namespace {

// Captures the text that OpenCV's codecs write to std::cerr, for the error that names the file.

thread_local std::string* t_kept = nullptr;

/// Forwards to std::cerr's own buffer or to this thread's text. Has no buffer of its own, so
/// threads share nothing.
class Filter final : public std::streambuf {
 public:
  explicit Filter(std::streambuf* next) : next_(next) {}

 protected:
  int_type overflow(int_type c) override {
    if (t_kept == nullptr) return next_->sputc(traits_type::to_char_type(c));
    t_kept->push_back(traits_type::to_char_type(c));
    return c;
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    if (t_kept == nullptr) return next_->sputn(text, size);
    t_kept->append(text, static_cast<std::size_t>(size));
    return size;
  }
  int sync() override { return t_kept == nullptr ? next_->pubsync() : 0; }

 private:
  std::streambuf* next_;
};

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

ErrorText::ErrorText() {
  // Never removed: it must outlive whatever still writes at the end of the program.
  static const bool installed = (std::cerr.rdbuf(new Filter(std::cerr.rdbuf())), true);
  static_cast<void>(installed);
  t_kept = &text_;
}

ErrorText::~ErrorText() { t_kept = nullptr; }

std::string ErrorText::reason() const {
  // "imdecode_(''): can't read data: OpenCV(4.6.0) FILE:LINE: error: (-2:...) REASON in
  // function..."
  constexpr std::string_view kStart = "error: (";
  std::string_view text = text_;
  const std::size_t start = text.find(kStart);
  if (start == text.npos) return {};
  text.remove_prefix(start + kStart.size());
  const std::size_t code = text.find(") ");
  if (code != text.npos) text.remove_prefix(code + 2);
  constexpr std::size_t kMax = 120;
  text = text.substr(0, std::min(text.find('\n'), kMax));
  text = text.substr(0, text.find("in function"));
  return std::string(text.substr(0, text.find_last_not_of(' ') + 1));
}

millrace_status fail(const std::string& reason, millrace_call* call) {
  std::snprintf(call->error, call->error_size, "%s", reason.c_str());
  return MILLRACE_BAD_DATA;
}

void* open(const void*) {
  static std::once_flag once;
  std::call_once(once, [] {
    cv::setNumThreads(0);  // OpenCV's threads would compete with the workers
    cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
  });
  static char nothing;  // OpenCV keeps no state from image to image
  return &nothing;
}

/// Decodes into OpenCV's own memory: given ours, it would not report a failure.
millrace_status decode(void*, const std::uint8_t* bytes, std::size_t size,
                       const millrace_decode* request, std::uint8_t* pixels, std::size_t row_bytes,
                       millrace_call* call) try {
  if (size > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    return fail("a file of 2 GiB or more", call);
  const bool gray = request->channels == 1;
  const int mode = gray ? cv::IMREAD_GRAYSCALE : cv::IMREAD_COLOR;
  const cv::Mat file(1, static_cast<int>(size), CV_8UC1, const_cast<std::uint8_t*>(bytes));
  const ErrorText text;
  const cv::Mat image = cv::imdecode(file, mode | cv::IMREAD_IGNORE_ORIENTATION);
  if (image.empty()) {
    const std::string reason = text.reason();
    return fail("damaged or cut short" + (reason.empty() ? reason : " (" + reason + ")"), call);
  }
  // `pixels` has room for the size in the header, so any other size is an error.
  const millrace_rect& whole = request->region;
  if (image.cols != whole.x1 || image.rows != whole.y1)
    return fail("its header and its pixels disagree on the size", call);

  cv::Mat out(image.rows, image.cols, gray ? CV_8UC1 : CV_8UC3, pixels, row_bytes);
  if (gray)
    image.copyTo(out);
  else
    cv::cvtColor(image, out, cv::COLOR_BGR2RGB);
  return MILLRACE_OK;
} catch (const std::exception& exception) {
  return fail(exception.what(), call);
}

constexpr Format kBmp{"bmp",
                      "Windows bitmap",
                      [](const std::uint8_t* b, std::size_t n) -> int {
                        return n >= 18 && has(b, n, 0, "BM", 2) && b[15] == 0 && b[16] == 0;
                      },
                      bmp_header,
                      open,
                      close_nothing,
                      decode};

}  // namespace

extern constinit const millrace_unit kBmpUnit = unit_of<kBmp>();

}  // namespace imgcodecs
