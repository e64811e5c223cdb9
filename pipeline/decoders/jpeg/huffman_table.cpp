#include "pipeline/decoders/jpeg/huffman_table.h"

#include <algorithm>
#include <cstring>

namespace millrace::pipeline {
namespace {

constexpr unsigned kLongestCode = 16;
constexpr unsigned kSixteenZeros = 0xf0;  // symbol: skips 16 coefficients

HuffmanEntry pack(unsigned bits, unsigned advance, unsigned high) {
  return bits | advance << 8 | (high & 0xffff) << 16;
}

/// Returns the value that `size` bits stand for: the lower half of the numbers is negative.
int extended(unsigned raw, unsigned size) {
  const int value = static_cast<int>(raw);
  return size > 0 && raw < 1U << (size - 1) ? value - (1 << size) + 1 : value;
}

}  // namespace

/// Checks the code lengths, and notes where the codes of each length end.
bool HuffmanTable::count(const HuffmanCodes& codes) {
  std::uint32_t code = 0;
  unsigned total = 0;
  for (unsigned n = 1; n <= kLongestCode; ++n) {
    const unsigned here = codes.counts[n];
    offsets_[n] = static_cast<std::int32_t>(total) - static_cast<std::int32_t>(code);
    code += here;
    total += here;
    if (total > 256) return false;
    if (here > 0 && code >= 1U << n) return false;  // too many, or all ones
    limits_[n] = code << (kLongestCode - n);
    code <<= 1;
  }
  limits_[kLongestCode + 1] = 0;
  if (kind_ == Kind::ac) return true;
  return std::all_of(codes.symbols, codes.symbols + total, [](unsigned s) { return s <= 15; });
}

unsigned HuffmanTable::advance(unsigned symbol) const {
  if (kind_ == Kind::dc) return 0;
  if ((symbol & 15) != 0) return (symbol >> 4) + 1;
  return symbol == kSixteenZeros ? 16 : kEndsBlock;
}

bool HuffmanTable::build(const HuffmanCodes& codes, Kind kind) {
  if (built_ && kind == kind_ && std::memcmp(&codes, &codes_, sizeof codes) == 0) return true;
  built_ = false;
  kind_ = kind;
  if (!count(codes)) return false;
  HuffmanEntry* out = entries_.data();
  HuffmanEntry* const end = out + entries_.size();
  const std::uint8_t* next = codes.symbols;
  const auto fill = [&](unsigned spare, HuffmanEntry entry) {
    HuffmanEntry* const stop = out + std::min<std::ptrdiff_t>(1L << spare, end - out);
    std::fill(out, stop, entry);
    out = stop;
  };
  for (unsigned n = 1; n <= kLookupBits; ++n) {
    for (unsigned i = 0; i < codes.counts[n]; ++i) {
      const unsigned symbol = *next++;
      const unsigned size = symbol & 15, skip = advance(symbol), spare = kLookupBits - n;
      if (size > spare) {  // the value has bits that the look-up does not see
        fill(spare, pack(n, skip, size) | kUnresolved);
        continue;
      }
      for (unsigned raw = 0; raw < 1U << size; ++raw)
        fill(spare - size, pack(n + size, skip, static_cast<unsigned>(extended(raw, size))));
    }
  }
  std::fill(out, end, kUnresolved);  // longer codes, and invalid ones
  codes_ = codes;
  built_ = true;
  return true;
}

[[gnu::cold]] HuffmanEntry HuffmanTable::resolve(std::uint64_t bits, HuffmanEntry entry) const {
  unsigned length = entry & 63, size = entry >> 16, skip = entry >> 8 & 0xff;
  if (length == 0) {
    const auto head = static_cast<std::uint32_t>(bits >> (64 - kLongestCode));
    length = kLookupBits + 1;
    while (length <= kLongestCode && head >= limits_[length]) ++length;
    if (length > kLongestCode) return pack(0, kNoCode, 0);
    const auto code = static_cast<std::int32_t>(head >> (kLongestCode - length));
    const unsigned symbol = codes_.symbols[static_cast<std::uint8_t>(offsets_[length] + code)];
    size = symbol & 15;
    skip = advance(symbol);
  }
  const auto raw = size > 0 ? static_cast<unsigned>(bits << length >> (64 - size)) : 0;
  return pack(length + size, skip, static_cast<unsigned>(extended(raw, size)));
}

}  // namespace millrace::pipeline
