// Images of which only the requested pixels are in memory. Memory before the first of them, and
// behind the slack of the last, cannot be read; memory between rows holds a level that the test
// chooses.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "millrace/buffer.h"
#include "millrace/transform.h"
#include "pipeline/decoders/decoder.h"

namespace millrace::test {

/// A range of addresses, of which one piece at a time is readable, with a wide unreadable margin on
/// either side.
class FencedMemory {
 public:
  explicit FencedMemory(std::size_t most = std::size_t{1} << 22)
      : max_(whole_pages(most)), reserved_(3 * max_) {
    void* memory =
        mmap(nullptr, reserved_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<std::uint8_t*>(memory);
  }
  ~FencedMemory() { munmap(memory_, reserved_); }
  FencedMemory(const FencedMemory&) = delete;
  FencedMemory& operator=(const FencedMemory&) = delete;

  /// Returns `size` bytes that hold `level`: the first ones behind a fence, or the last ones before
  /// one.
  std::uint8_t* piece(std::size_t size, bool at_front, std::uint8_t level) {
    const std::size_t pages = whole_pages(size);
    if (pages > max_) throw std::bad_alloc();
    std::uint8_t* begin = memory_ + max_;
    mprotect(begin, max_, PROT_NONE);
    if (mprotect(begin, pages, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    std::memset(begin, level, pages);
    return at_front ? begin : begin + (pages - size);
  }

 private:
  static std::size_t whole_pages(std::size_t size) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return (size + page - 1) / page * page;
  }

  std::size_t max_, reserved_;
  std::uint8_t* memory_;
};

/// Layout of the pixels that a fenced source delivers.
struct Fencing {
  bool at_front = false;   ///< the fence is before the first pixel, otherwise behind the last
  std::uint8_t level = 0;  ///< level of all bytes that were not requested
  /// Rows as far apart as in the whole image, otherwise as decoders lay them out.
  bool whole_rows = false;
  int orientation = 1;  ///< EXIF's orientation of the stored image
};

class FencedSource final : public PixelSource {
 public:
  FencedSource(PixelSource& source, FencedMemory& memory, const Fencing& fencing)
      : source_(source), memory_(memory), fencing_(fencing) {}
  Size size() const override { return source_.size(); }
  bool serves_regions() const override { return true; }
  ImageView pixels(const Rect& region, int scale) override {
    const ImageView from = source_.pixels(region, scale);
    const pipeline::Orientation orientation = pipeline::orientation_of(fencing_.orientation);
    const Size stored =
        pipeline::oriented(from.size(), orientation);  // a transposition is its own inverse
    const Rect held = pipeline::stored_rect(region, stored, orientation);
    const int width = held.x1 - held.x0, height = held.y1 - held.y0;
    const std::ptrdiff_t row =
        std::ptrdiff_t{fencing_.whole_rows ? stored.width : width} * from.channels;
    const auto size =
        static_cast<std::size_t>((height - 1) * row + std::ptrdiff_t{width} * from.channels);
    std::uint8_t* at = memory_.piece(size + kTailSlack, fencing_.at_front, fencing_.level);
    ImageView view = interleaved(at, stored, from.channels);
    view.row = row;
    view.data -= held.y0 * row + held.x0 * view.pixel;
    view = pipeline::oriented(view, orientation);
    for (int y = region.y0; y < region.y1; ++y)
      for (int x = region.x0; x < region.x1; ++x)
        std::memcpy(const_cast<std::uint8_t*>(view.at(x, y)), from.at(x, y),
                    static_cast<std::size_t>(from.channels));
    asked = region;
    return view;
  }
  Rect asked{};  ///< region of the last call

 private:
  PixelSource& source_;
  FencedMemory& memory_;
  Fencing fencing_;
};

/// While it lives, a signal for a memory fault prints what the test was doing.
class FaultNote {
 public:
  FaultNote() {
    struct sigaction action {};
    action.sa_handler = [](int signal) {
      const std::string& doing = text();
      // Nothing is left to do if this cannot be written.
      if (write(STDERR_FILENO, doing.data(), doing.size()) < 0) _exit(1);
      struct sigaction usual {};
      usual.sa_handler = SIG_DFL;
      sigaction(signal, &usual, nullptr);  // the faulting instruction runs again
    };
    sigaction(SIGSEGV, &action, &before_);
  }
  ~FaultNote() { sigaction(SIGSEGV, &before_, nullptr); }
  FaultNote(const FaultNote&) = delete;
  FaultNote& operator=(const FaultNote&) = delete;

  void set(const std::string& doing) { text() = "memory outside of what is held: " + doing + "\n"; }

 private:
  static std::string& text() {
    static std::string text;
    return text;
  }
  struct sigaction before_ {};
};

}  // namespace millrace::test
