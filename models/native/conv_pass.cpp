// Geometry of passes, and weights ordered for the kernels.
#include "models/native/conv_pass.h"

namespace millrace::train::native {
namespace {

constexpr std::int64_t kBandBytes = 256 << 10;

/// Orders weights. `at(o, c, ky, kx)` is the weight of output channel o for channel c of its group.
template <class T, class At>
std::vector<T> tile(const ConvPass& pass, const At& at) {
  std::vector<T> tiled;
  const std::int64_t group_in = pass.in / pass.groups;
  const std::int64_t group_out = pass.out / pass.groups;
  tiled.reserve(static_cast<std::size_t>(pass.out * group_in * pass.kernel.h * pass.kernel.w));
  for (std::int64_t group = 0; group < pass.groups; ++group) {
    for (std::int64_t first = 0; first < group_out;) {
      const std::int64_t left = group_out - first;
      const std::int64_t width = *std::find_if(kChannelTiles.begin(), kChannelTiles.end(),
                                               [&](std::int64_t size) { return size <= left; });
      for (std::int64_t c = 0; c < group_in; ++c)
        for (std::int64_t ky = 0; ky < pass.kernel.h; ++ky)
          for (std::int64_t kx = 0; kx < pass.kernel.w; ++kx)
            for (std::int64_t o = 0; o < width; ++o)
              tiled.push_back(at(group * group_out + first + o, c, ky, kx));
      first += width;
    }
  }
  return tiled;
}

}  // namespace

Window ConvPass::window(std::int64_t row, std::int64_t rows) const {
  return {.channels = in,
          .row = row * stride.h - padding.h,
          .rows = (rows - 1) * stride.h + dilation.h * (kernel.h - 1) + 1,
          .column = -padding.w,
          .columns = (output.w - 1) * stride.w + dilation.w * (kernel.w - 1) + 1,
          .image = image,
          .insert = insert};
}

std::int64_t ConvPass::band_rows(std::int64_t bytes_a_number, std::int64_t multiple) const {
  std::int64_t rows = output.h / multiple * multiple;
  while (rows > multiple &&
         (window(0, rows).pixels() + out * rows * output.w) * bytes_a_number > kBandBytes)
    rows = std::max(multiple, rows / 2 / multiple * multiple);
  return rows;
}

ConvPass forward_pass(const ConvGeometry& g) {
  return {.in = g.in,
          .out = g.out,
          .groups = g.groups,
          .image = g.input,
          .output = g.output,
          .kernel = g.kernel,
          .stride = g.stride,
          .dilation = g.dilation,
          .padding = g.padding,
          .insert = {}};
}

ConvPass input_pass(const ConvGeometry& g) {
  return {.in = g.out,
          .out = g.in,
          .groups = g.groups,
          .image = g.output,
          .output = g.input,
          .kernel = g.kernel,
          .stride = {},
          .dilation = g.dilation,
          .padding = {g.dilation.h * (g.kernel.h - 1) - g.padding.h,
                      g.dilation.w * (g.kernel.w - 1) - g.padding.w},
          .insert = g.stride};
}

template <class T>
std::vector<T> tile_forward(const ConvGeometry& g, const T* weight) {
  return tile<T>(forward_pass(g), [&](auto o, auto c, auto ky, auto kx) {
    return weight[((o * g.group_in() + c) * g.kernel.h + ky) * g.kernel.w + kx];
  });
}

template <class T>
std::vector<T> tile_turned(const ConvGeometry& g, const T* weight) {
  return tile<T>(input_pass(g), [&](auto in, auto c, auto ky, auto kx) {
    const std::int64_t out = in / g.group_in() * g.group_out() + c;
    const std::int64_t row = out * g.group_in() + in % g.group_in();
    return weight[(row * g.kernel.h + g.kernel.h - 1 - ky) * g.kernel.w + g.kernel.w - 1 - kx];
  });
}

template std::vector<float> tile_forward(const ConvGeometry&, const float*);
template std::vector<double> tile_forward(const ConvGeometry&, const double*);
template std::vector<float> tile_turned(const ConvGeometry&, const float*);
template std::vector<double> tile_turned(const ConvGeometry&, const double*);

}  // namespace millrace::train::native
