// The decoders at hand: built in (jpeg) or from plugins, all by the same table
// (plugins/millrace.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pipeline/buffer.h"
#include "pipeline/image.h"
#include "plugins/millrace.h"

namespace millrace {

/// All decoders, in the order in which they are asked. Built-in ones first; the shipped plugins
/// are loaded when a sample is met that no other decoder takes.
class Decoders {
 public:
  /// The decoder for these bytes; throws DataError naming what the bytes look like.
  static const millrace_decoder& of(std::span<const std::uint8_t> bytes);
};

/// One thread's working memory for decoding: codec contexts and the pixels of one image.
class DecodeScratch {
 public:
  DecodeScratch();
  ~DecodeScratch();
  DecodeScratch(const DecodeScratch&) = delete;
  DecodeScratch& operator=(const DecodeScratch&) = delete;

  /// Decodes into memory that stays valid until the next call. Throws DataError (one line, without
  /// the sample's name) for damaged or unknown bytes, and before it allocates anything for images
  /// of more than `max_pixels` pixels.
  ImageView decode(std::span<const std::uint8_t> bytes, int channels, std::uint64_t max_pixels);

 private:
  struct Context;
  std::vector<Context> contexts_;
  Buffer pixels_;
};

}  // namespace millrace
