// Puts EntropyDecoder in the place of libjpeg-turbo's Huffman decoder, behind its public interface:
// inverse DCT, upsampling, colours, scaling and cropping remain libjpeg-turbo's.
#pragma once

#include "pipeline/decoders/jpeg/context.h"

namespace millrace::pipeline {

/// Columns of MCUs of which pixels are used.
struct McuColumns {
  std::uint32_t first, last;
};

/// Takes over the decoding of the image that jpeg_start_decompress() and jpeg_crop_scanline() have
/// prepared, if it is of a kind that EntropyDecoder decodes. Returns who decodes it. Afterwards,
/// data that is not plain leaves libjpeg's calls with JpegContext::irregular.
JpegRoute take_over(JpegContext& context, McuColumns columns);

}  // namespace millrace::pipeline
