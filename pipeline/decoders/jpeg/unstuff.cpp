#include "pipeline/decoders/jpeg/unstuff.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace millrace::pipeline {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);

/// Returns the number of bytes before the first 0xff of a word in memory order; kWord if none.
std::size_t before_ff(std::uint64_t word) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::uint64_t kOnes = 0x0101010101010101, kTops = 0x8080808080808080;
  const std::uint64_t inverted = ~word;  // looks for a zero byte; the lowest mark is exact
  const std::uint64_t marks = (inverted - kOnes) & word & kTops;
  return marks == 0 ? kWord : static_cast<std::size_t>(std::countr_zero(marks)) / 8;
}

}  // namespace

Unstuffed unstuff(const std::uint8_t* in, const std::uint8_t* limit, const std::uint8_t* end,
                  std::uint8_t* out) {
  using End = Unstuffed::End;
  static_assert(kUnstuffSlack >= kWord);
  while (in < limit) {
    if (static_cast<std::size_t>(limit - in) >= kWord) {
      std::uint64_t word;
      std::memcpy(&word, in, kWord);
      std::memcpy(out, &word, kWord);
      const std::size_t plain = before_ff(word);
      in += plain;
      out += plain;
      if (plain == kWord) continue;
    }
    if (*in != 0xff) {
      *out++ = *in++;
      continue;
    }
    const std::uint8_t* const second = std::find_if(in + 1, end, [](auto c) { return c != 0xff; });
    if (second == end) return {End::cut, 0, in, out};
    if (*second != 0) return {End::marker, *second, second + 1, out};
    if (second != in + 1) return {End::odd, 0, in, out};
    *out++ = 0xff;
    in += 2;
  }
  return {in < end ? End::more : End::cut, 0, in, out};
}

}  // namespace millrace::pipeline
