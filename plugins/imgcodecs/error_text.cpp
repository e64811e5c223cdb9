// Collects the messages of codec libraries.
#include "plugins/imgcodecs/error_text.h"

#include <algorithm>
#include <iostream>
#include <streambuf>
#include <string_view>

namespace imgcodecs {
namespace {

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

}  // namespace

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

}  // namespace imgcodecs
