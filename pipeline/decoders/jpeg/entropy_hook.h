// Puts EntropyDecoder in the place of libjpeg-turbo's Huffman decoder, behind its public interface:
// inverse DCT, upsampling, colours, scaling and cropping remain libjpeg-turbo's.
#pragma once

#include "pipeline/decoders/jpeg/context.h"

namespace millrace::pipeline {

/// Columns of MCUs of which pixels are used.
struct McuColumns {
  std::uint32_t first, last;
};

/// Keeps libjpeg from preparing Huffman tables that take_over() will not let it use: a twelfth of
/// the time of loading an image of 32x32. Call before jpeg_start_decompress(), and restore_tables()
/// after it. Returns whether it did, if the image looks like one that EntropyDecoder decodes;
/// should take_over() find otherwise, libjpeg has to start again.
bool spare_tables(JpegContext& context);
void restore_tables(JpegContext& context);

/// Takes over the decoding of the image that jpeg_start_decompress() and jpeg_crop_scanline() have
/// prepared, if it is of a kind that EntropyDecoder decodes. Returns who decodes it. Afterwards,
/// data that is not plain leaves libjpeg's calls with JpegContext::irregular.
JpegRoute take_over(JpegContext& context, McuColumns columns);

}  // namespace millrace::pipeline
