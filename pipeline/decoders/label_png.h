// Reads masks with libpng: PNG files whose pixels are class ids. A palette's indices are the ids;
// its colours are not looked at, which decoders of images would hand out instead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/private_api.h"
#include "millrace/buffer.h"
#include "millrace/image.h"
#include "millrace/transform.h"

namespace millrace::pipeline {

/// One thread's working memory for masks. It grows with the largest mask, then stays.
class MILLRACE_PRIVATE_API LabelPng final : public PixelSource {
 public:
  /// Reads the header of a PNG file with 8-bit gray levels or a palette. The bytes must stay in
  /// place until pixels(). Throws DataError for any other file, and for one of more than
  /// `max_pixels` pixels or with a side longer than kMaxImageSide (bounded-memory contract).
  void open(std::span<const std::uint8_t> bytes, std::uint64_t max_pixels);
  /// Throws DataError unless the mask that was opened last has the size of its image.
  void require_size(Size image) const;

  Size size() const override { return size_; }
  bool serves_regions() const override { return true; }
  /// Unpacks the rows down to the region's last one; what lies below is not even checked.
  ImageView pixels(const Rect& region, int scale) override;

  /// Frees buffers of more than `most` bytes.
  void trim(std::size_t most);

 private:
  class Decoding;

  /// Lends libpng memory from a block that is reused from mask to mask.
  class Arena {
   public:
    /// Takes everything back, and makes room for as much as was lent since the last call.
    void reset();
    /// Returns null if there is no memory.
    void* allocate(std::size_t size);
    void release(void* memory);
    Buffer& block() { return block_; }

   private:
    Buffer block_;
    std::size_t used_ = 0;  ///< bytes asked for since reset(), also those beyond the block
  };

  std::span<const std::uint8_t> file_;
  Size size_;
  Buffer pixels_;  ///< a byte per pixel
  Arena arena_;
};

}  // namespace millrace::pipeline
