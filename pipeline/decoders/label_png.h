// Reads masks: PNG files whose pixels are class ids. A palette's indices are the ids; its colours
// are not looked at, which is why these files have a decoder of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/private_api.h"
#include "millrace/buffer.h"
#include "millrace/image.h"
#include "millrace/transform.h"

struct z_stream_s;

namespace millrace::pipeline {

/// One thread's working memory for masks. It grows with the largest mask, then stays.
class MILLRACE_PRIVATE_API LabelPng final : public PixelSource {
 public:
  /// Throws std::bad_alloc.
  LabelPng();
  ~LabelPng() override;
  LabelPng(const LabelPng&) = delete;
  LabelPng& operator=(const LabelPng&) = delete;

  /// Parses the header of a PNG file with 8-bit gray levels or a palette. The bytes must stay in
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
  struct Chunk;
  Chunk next_chunk();
  void inflate_rows(std::size_t bytes);

  struct End {
    void operator()(z_stream_s* stream) const;
  };
  std::unique_ptr<z_stream_s, End> stream_;
  std::span<const std::uint8_t> header_end_;  ///< the chunks behind the header
  std::span<const std::uint8_t> rest_;        ///< those that are not read yet
  Size size_;
  int depth_ = 8;  ///< bits per pixel: 1, 2, 4 or 8
  Buffer rows_;    ///< each after a byte that names its filter
  Buffer pixels_;  ///< a byte per pixel, if the rows hold less
};

}  // namespace millrace::pipeline
