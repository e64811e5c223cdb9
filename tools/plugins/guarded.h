// Memory between two pages that nobody may touch, with bytes of a known pattern in the gaps: what a
// plugin does outside the memory it was given is seen at once, or when check() looks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace millrace::tools {

/// What a check found wrong.
struct Defect : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Guarded {
 public:
  /// Which forbidden page the memory borders on, as closely as `align` allows.
  enum class Near { behind, before };

  /// `what` names it in messages ("the image") and must outlive it. All bytes start as `fill`.
  Guarded(const char* what, std::size_t size, Near near, std::uint8_t fill, std::size_t align = 1);
  ~Guarded();
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  std::uint8_t* data() const { return data_; }
  std::size_t size() const { return size_; }
  /// From now on its bytes may be read, but not written.
  void protect();
  /// Throws Defect if a byte of the gaps has changed.
  void check() const;

 private:
  std::uint8_t pattern(const std::uint8_t* at) const;

  const char* what_;
  std::size_t size_;
  std::uint8_t fill_;
  std::uint8_t* pages_;
  std::size_t mapped_;  ///< with the two forbidden pages
  std::uint8_t* data_;
  int watched_;
};

/// From now on a touch of a forbidden page is written to `descriptor` as a line "fail\tREASON", and
/// the process ends; other faults end it as they would.
void report_touches(int descriptor);

}  // namespace millrace::tools
