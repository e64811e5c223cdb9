// Counts the memory that a sample takes while it is made.
#include "pipeline/loader/memory_claim.h"

#include "millrace/limits.h"

namespace millrace::pipeline {

std::uint64_t sample_bytes(const Reader& reader, std::uint64_t pixels, int channels, Depth depth,
                           int copies) {
  const Annotations* const annotations = reader.annotations();
  const bool outlines = annotations != nullptr && annotations->has_outlines;
  // A mask takes up to two bytes per pixel while it is unpacked.
  const int mask_channels = reader.info().masks ? 2 : outlines ? 1 : 0;
  if (depth == Depth::u8) return working_bytes(pixels, channels + mask_channels, copies);
  // The image as it is stored, and that image and each copy as floats.
  const auto bytes = bytes_of(depth) + bytes_of(Depth::f32) * (1 + copies);
  return working_bytes(pixels, channels * static_cast<int>(bytes) + mask_channels);
}

}  // namespace millrace::pipeline
