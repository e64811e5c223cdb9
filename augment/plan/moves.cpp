// Copies pixels for maps that only move them.
#include "augment/plan/moves.h"

namespace millrace::augment {

void move_pixels(const Kernels& kernels, const ImageView& view, const Rect& rect,
                 const Canvas& canvas) {
  const int width = rect.x1 - rect.x0;
  const int height = rect.y1 - rect.y0;
  if (width <= 0 || height <= 0) return;
  const auto block = [&](int c, int bytes) -> Block {
    return {view.at(rect.x0, rect.y0, c),
            view.row,
            canvas.at(rect.x0, rect.y0, c),
            canvas.row,
            bytes,
            height};
  };
  const int channels = view.channels;
  const bool from_rgb = channels == 3 && view.channel == 1 && (view.pixel == 3 || view.pixel == -3);
  const bool from_planes = view.pixel == 1 || view.pixel == -1;
  const bool to_rgb = channels == 3 && canvas.interleaved();
  if (from_rgb && to_rgb) {
    if (view.pixel > 0) return kernels.copy(block(0, width * 3));
    return kernels.reverse(block(0, width), 3);
  }
  if (from_rgb) return kernels.split(block(0, width), canvas.channel, view.pixel < 0);
  if (from_planes && to_rgb) return kernels.join(block(0, width), view.channel, view.pixel < 0);
  if (from_planes) {
    for (int c = 0; c < channels; ++c)
      if (view.pixel > 0)
        kernels.copy(block(c, width));
      else
        kernels.reverse(block(c, width), 1);
    return;
  }
  for (int y = rect.y0; y < rect.y1; ++y)
    for (int c = 0; c < channels; ++c) {
      const std::uint8_t* in = view.at(rect.x0, y, c);
      std::uint8_t* out = canvas.at(rect.x0, y, c);
      for (int x = 0; x < width; ++x) out[x * canvas.pixel] = in[x * view.pixel];
    }
}

void paint(const Kernels& kernels, const Rect& rect, const Fill& fill, const Canvas& canvas) {
  const int width = rect.x1 - rect.x0;
  const int height = rect.y1 - rect.y0;
  if (width <= 0 || height <= 0) return;
  if (canvas.channels == 1 || !canvas.interleaved()) {
    for (int c = 0; c < canvas.channels; ++c)
      kernels.fill(canvas.at(rect.x0, rect.y0, c), canvas.row, width, height,
                   fill[static_cast<std::size_t>(c)]);
  } else if (fill[0] == fill[1] && fill[1] == fill[2]) {
    kernels.fill(canvas.at(rect.x0, rect.y0), canvas.row, width * 3, height, fill[0]);
  } else {
    for (int y = rect.y0; y < rect.y1; ++y) {
      std::uint8_t* out = canvas.at(rect.x0, y);
      for (int x = 0; x < width; ++x)
        for (std::size_t c = 0; c < 3; ++c) *out++ = fill[c];
    }
  }
}

}  // namespace millrace::augment
