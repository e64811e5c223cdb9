// Memory between two guard pages, with a known pattern in the gaps. Accesses outside of it are
// caught at once by the pages, or by check().
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace millrace::tools {

/// Reports what a check found wrong.
struct Defect : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Guarded {
 public:
  /// The guard page that the memory borders on, as closely as `align` allows.
  enum class Near { behind, before };

  /// `what` names the memory in messages ("the image") and must outlive it. All bytes start as
  /// `fill`.
  Guarded(const char* what, std::size_t size, Near near, std::uint8_t fill, std::size_t align = 1);
  ~Guarded();
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  std::uint8_t* data() const { return data_; }
  std::size_t size() const { return size_; }
  /// Makes the bytes read-only.
  void protect();
  /// Throws Defect if a byte of the gaps has changed.
  void check() const;

 private:
  std::uint8_t pattern(const std::uint8_t* at) const;

  const char* what_;
  std::size_t size_;
  std::uint8_t fill_;
  std::uint8_t* pages_;
  std::size_t mapped_;  ///< including the guard pages
  std::uint8_t* data_;
  int watched_;
};

/// From now on, an access to a guard page writes the line "fail\tREASON" to `descriptor` and ends
/// the process. Other faults end it as usual.
void report_touches(int descriptor);

}  // namespace millrace::tools
