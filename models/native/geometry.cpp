// Computes output sizes and rejects unsupported shapes.
#include "models/native/geometry.h"

#include <limits>
#include <string>

#include "millrace/error.h"

namespace millrace::train::native {
namespace {

std::string text(const Pair& pair) { return std::to_string(pair.h) + "x" + std::to_string(pair.w); }

[[noreturn]] void refuse(const char* op, const std::string& what) {
  throw UsageError(
      std::string("native ") + op + ": " + what,
      "docs/reference/native-ops.md lists what is supported; model.ops=torch takes the rest");
}

bool positive(const Pair& pair) { return pair.h > 0 && pair.w > 0; }

/// Returns the pixels that a window spans.
Pair reach_of(const Pair& kernel, const Pair& dilation) {
  return {dilation.h * (kernel.h - 1) + 1, dilation.w * (kernel.w - 1) + 1};
}

template <class Geometry>
void complete_window(const char* op, Geometry& g) {
  if (!positive(g.kernel) || !positive(g.stride) || !positive(g.dilation))
    refuse(op, "kernel " + text(g.kernel) + ", stride " + text(g.stride) + " and dilation " +
                   text(g.dilation) + " must be at least 1");
  if (g.padding.h < 0 || g.padding.w < 0) refuse(op, "padding " + text(g.padding) + " is negative");
  const Pair reach = reach_of(g.kernel, g.dilation);
  const std::int64_t spare_h = g.input.h + 2 * g.padding.h - reach.h;
  const std::int64_t spare_w = g.input.w + 2 * g.padding.w - reach.w;
  if (!positive(g.input) || spare_h < 0 || spare_w < 0)
    refuse(op, "images of " + text(g.input) + " with padding " + text(g.padding) +
                   " are smaller than the kernel's reach of " + text(reach));
  g.output = {spare_h / g.stride.h + 1, spare_w / g.stride.w + 1};
}

/// Returns whether every window of an axis holds a pixel; dilated windows may skip over a narrow
/// image.
bool all_see_pixels(std::int64_t outputs, std::int64_t side, std::int64_t kernel,
                    std::int64_t stride, std::int64_t padding, std::int64_t dilation) {
  for (std::int64_t i = 0; i < outputs; ++i) {
    bool sees = false;
    for (std::int64_t k = 0; k < kernel; ++k) {
      const std::int64_t at = i * stride - padding + k * dilation;
      sees = sees || (at >= 0 && at < side);
    }
    if (!sees) return false;
  }
  return true;
}

}  // namespace

void complete(ConvGeometry& g) {
  if (g.groups < 1 || g.in < 1 || g.out < 1 || g.in % g.groups != 0 || g.out % g.groups != 0)
    refuse("conv2d", std::to_string(g.in) + " channels in and " + std::to_string(g.out) +
                         " out do not divide into " + std::to_string(g.groups) + " groups");
  complete_window("conv2d", g);
}

void complete(PoolGeometry& g) {
  complete_window("max_pool2d", g);
  if (g.input.h > std::numeric_limits<std::int32_t>::max() / g.input.w)
    refuse("max_pool2d", "images of " + text(g.input) + " have too many pixels");
  if (2 * g.padding.h > g.kernel.h || 2 * g.padding.w > g.kernel.w)
    refuse("max_pool2d",
           "padding " + text(g.padding) + " is more than half the kernel " + text(g.kernel));
  if (!all_see_pixels(g.output.h, g.input.h, g.kernel.h, g.stride.h, g.padding.h, g.dilation.h) ||
      !all_see_pixels(g.output.w, g.input.w, g.kernel.w, g.stride.w, g.padding.w, g.dilation.w))
    refuse("max_pool2d", "a window of dilation " + text(g.dilation) +
                             " holds no pixel of an image of " + text(g.input));
}

}  // namespace millrace::train::native
