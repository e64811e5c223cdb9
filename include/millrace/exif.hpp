// EXIF orientation, for decoders. Parses the TIFF header and its first directory in place: reads
// nothing outside the given bytes and follows no offset twice, whatever the bytes hold.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

/// Returns the Orientation tag (1 to 8) of the first directory of EXIF's TIFF structure, which
/// starts with "II" or "MM". Returns 0 if the tag is missing or cannot be read. Throws nothing.
/// Source: TIFF 6.0, EXIF 2.32.
inline std::uint32_t exif_orientation(const std::uint8_t* tiff, std::size_t size) {
  constexpr std::size_t kHeader = 8, kEntry = 12;
  if (size < kHeader) return 0;
  const bool big = tiff[0] == 'M' && tiff[1] == 'M';
  if (!big && (tiff[0] != 'I' || tiff[1] != 'I')) return 0;
  const auto read16 = [&](std::size_t at) -> std::uint32_t {
    return big ? tiff[at] * 256u + tiff[at + 1] : tiff[at + 1] * 256u + tiff[at];
  };
  const auto read32 = [&](std::size_t at) -> std::uint32_t {
    return big ? read16(at) << 16 | read16(at + 2) : read16(at + 2) << 16 | read16(at);
  };
  constexpr std::uint32_t kTiff = 42, kOrientation = 0x0112, kShort = 3, kLong = 4;
  if (read16(2) != kTiff) return 0;
  const std::size_t directory = read32(4);
  if (directory < kHeader || directory > size - 2) return 0;
  const std::uint32_t entries = read16(directory);
  std::size_t at = directory + 2;
  for (std::uint32_t i = 0; i < entries && size - at >= kEntry; ++i, at += kEntry) {
    if (read16(at) != kOrientation) continue;
    const std::uint32_t type = read16(at + 2);
    const std::uint32_t value = type == kShort  ? read16(at + 8)
                                : type == kLong ? read32(at + 8)
                                                : 0;
    return value <= 8 ? value : 0;
  }
  return 0;
}

}  // namespace millrace
