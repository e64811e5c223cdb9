// Removes the zero byte that follows each 0xff in entropy-coded data (ITU-T T.81, B.1.1.5).
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::pipeline {

/// Bytes behind the last one that unstuff() may overwrite.
inline constexpr std::size_t kUnstuffSlack = 8;

struct Unstuffed {
  enum class End : std::uint8_t {
    more,    ///< the limit was reached
    marker,  ///< `next` points behind a marker
    cut,     ///< the input ends, or its last byte is 0xff
    odd,     ///< several 0xff before a zero, which the standard does not allow
  };
  End end;
  std::uint8_t marker;       ///< second byte of the marker; 0 without one
  const std::uint8_t* next;  ///< first byte that was not read
  std::uint8_t* out;         ///< end of what was written
};

/// Copies data bytes from `in` to `out` up to a marker, or until `in` has reached `limit`. Reads
/// nothing from `end` on; `limit` is at most `end`. A pair that begins before the limit is read
/// whole, so `out` needs limit - in + kUnstuffSlack bytes.
Unstuffed unstuff(const std::uint8_t* in, const std::uint8_t* limit, const std::uint8_t* end,
                  std::uint8_t* out);

}  // namespace millrace::pipeline
