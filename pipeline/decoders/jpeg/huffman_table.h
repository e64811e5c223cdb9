// Decoding tables for JPEG's Huffman codes (ITU-T T.81, annexes C and F). One look-up of 11 bits
// gives a symbol together with the value that follows it: how many coefficients to advance, the
// value, and the number of bits that both take.
#pragma once

#include <array>
#include <cstdint>

namespace millrace::pipeline {

/// A table as a file defines it (DHT).
struct HuffmanCodes {
  std::uint8_t counts[17];  ///< counts[n]: number of codes of n bits; counts[0] is not used
  std::uint8_t symbols[256];
};

/// Bits that one look-up sees. Longer tables fit the first-level cache less well.
inline constexpr unsigned kLookupBits = 11;
/// Longest code with the longest value: 16 + 15 bits.
inline constexpr unsigned kMaxSymbolBits = 31;

/// Result of a look-up, packed: bits 0 to 5 hold the bits to drop, bits 8 to 15 the advance, bits
/// 16 to 31 the value as a signed number.
using HuffmanEntry = std::uint32_t;

/// Marks an entry that HuffmanTable::resolve() has to complete.
inline constexpr HuffmanEntry kUnresolved = 0x80;
/// Advance of a symbol that ends a block. Together with any index of a block it exceeds every sum
/// that other symbols reach.
inline constexpr unsigned kEndsBlock = 128;
/// Advance of an invalid code. Leads to indices from 65 to 127, as a run past the block's end
/// does.
inline constexpr unsigned kNoCode = 64;

class HuffmanTable {
 public:
  enum class Kind : std::uint8_t { dc, ac };

  /// Prepares for `codes`; does nothing if they are those of the last call. Returns false, and is
  /// unusable until a later call succeeds, if they form no prefix code, use the code of all ones,
  /// or, for DC, hold a size above 15.
  bool build(const HuffmanCodes& codes, Kind kind);

  /// Returns the entry for the first bits of `bits`, which are left-aligned.
  HuffmanEntry at(std::uint64_t bits) const { return entries_[bits >> (64 - kLookupBits)]; }

  /// Completes an unresolved entry of at(bits). `bits` must hold kMaxSymbolBits bits. For bits that
  /// are not a code, the advance is kNoCode and no bits are dropped.
  HuffmanEntry resolve(std::uint64_t bits, HuffmanEntry entry) const;

 private:
  bool count(const HuffmanCodes& codes);
  unsigned advance(unsigned symbol) const;

  alignas(64) std::array<HuffmanEntry, 1U << kLookupBits> entries_{};
  std::array<std::uint32_t, 18> limits_{};  ///< first left-aligned 16 bits beyond codes of n bits
  std::array<std::int32_t, 17> offsets_{};  ///< index of a symbol, less its code of n bits
  HuffmanCodes codes_{};
  Kind kind_ = Kind::dc;
  bool built_ = false;
};

}  // namespace millrace::pipeline
