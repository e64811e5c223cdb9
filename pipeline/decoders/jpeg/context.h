// State of the JPEG decoder on one thread, which the files of this folder share.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>

// clang-format off: jpeglib.h uses FILE and size_t without including them, so it comes later.
#include <jerror.h>
#include <jpeglib.h>
// clang-format on

#include "millrace/buffer.h"
#include "pipeline/decoders/jpeg/entropy_decoder.h"
#include "pipeline/decoders/jpeg/jpeg.h"

namespace millrace::pipeline {

/// Memory for the tables of one image. libjpeg keeps tables for images that have none of their own,
/// by which such an image's pixels would depend on which one the thread has decoded before.
struct JpegTables {
  JQUANT_TBL quantization[NUM_QUANT_TBLS];
  JHUFF_TBL huffman[2 * NUM_HUFF_TBLS];
  int quantizations, huffmans;  ///< that are in use
  /// libjpeg's own allocator.
  void* (*allocate)(j_common_ptr codec, int pool, std::size_t size);
};

struct JpegContext {
  jpeg_decompress_struct codec;
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  /// Values with which libjpeg's calls are left, by longjmp.
  enum Escape : std::uint8_t {
    failed = 1,    ///< the image cannot be decoded, and `message` says why
    irregular = 2  ///< libjpeg-turbo alone is to decode the image from its start
  };
  std::jmp_buf escape;
  char* message;
  std::size_t message_size;

  // State of the image whose header was read last.
  /// The image's bytes while the codec is positioned after the header, else null.
  const std::uint8_t* parsed;
  std::size_t parsed_size;
  std::uint32_t orientation;
  std::int32_t width, height;
  std::int32_t grain;  ///< width in pixels of a column of blocks of all components

  JpegTables tables;
  JHUFF_TBL*
      spared[2 * NUM_HUFF_TBLS];  ///< tables for DC, then AC, while others are in their place
  Buffer row;                     ///< holds rows that cannot be written in place

  bool only_libjpeg;  ///< what use_libjpeg() set
  bool is_check;      ///< of the check whose result why_libjpeg() is
  bool hooked;        ///< EntropyDecoder is to work; whatever libjpeg reports is irregular
  JpegRoute route;    ///< of the image that is decoded
  EntropyDecoder entropy;
};

inline JpegContext& context_of(j_common_ptr codec) {
  return *static_cast<JpegContext*>(codec->client_data);
}

}  // namespace millrace::pipeline
