// A plugin that decodes PNG, WebP and TIFF with libpng, libwebp and libtiff, and BMP with OpenCV
// (unless it is built without). As a plugin it keeps these libraries out of a program that meets
// only JPEG.
#include <iterator>

#include "millrace/millrace.h"

namespace imgcodecs {

extern const millrace_unit kPngUnit, kBmpUnit, kWebpUnit, kTiffUnit;

namespace {

constexpr const millrace_unit* kUnits[] = {&kPngUnit,
#if MILLRACE_OPENCV
                                           &kBmpUnit,
#endif
                                           &kWebpUnit, &kTiffUnit};

}  // namespace
}  // namespace imgcodecs

extern "C" __attribute__((visibility("default")))
const millrace_plugin_table millrace_plugin = {MILLRACE_MAGIC,
                                               MILLRACE_ABI_MAJOR,
                                               MILLRACE_ABI_MINOR,
                                               sizeof(millrace_plugin_table),
                                               "imgcodecs",
                                               "0.3.0",
                                               "Apache-2.0",
                                               imgcodecs::kUnits,
                                               std::size(imgcodecs::kUnits)};
