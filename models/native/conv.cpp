// Geometry of passes, and weights ordered for the kernels.
#include <algorithm>
#include <vector>

#include "models/native/conv_kernels.h"
#include "models/native/kernels.h"

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

// Distributes blocks of samples and bands of rows over tasks and buffers.
namespace {

/// Samples [first, first + used), one per lane.
struct Lanes {
  std::int64_t first, used;
};

/// Divides a batch into blocks of samples, and each image into bands of rows: the units of tasks.
struct Cut {
  std::int64_t batch, lanes, rows, band;

  std::int64_t blocks() const { return (batch + lanes - 1) / lanes; }
  std::int64_t bands() const { return rows == 0 ? 0 : (rows + band - 1) / band; }
  std::int64_t tasks() const { return blocks() * bands(); }
  Lanes block(std::int64_t index) const {
    return {index * lanes, std::min(lanes, batch - index * lanes)};
  }
  std::int64_t first_row(std::int64_t index) const { return index * band; }
  std::int64_t band_rows(std::int64_t index) const {
    return std::min(band, rows - first_row(index));
  }
};

template <class T>
Cut cut_of(const ConvPass& pass, std::int64_t batch, std::int64_t multiple = 1) {
  const std::int64_t lanes = conv_kernels<T>(base::simd_level()).lanes;
  return {batch, lanes, pass.output.h / multiple * multiple,
          pass.band_rows(lanes * std::int64_t{sizeof(T)}, multiple)};
}

template <class T>
View<T> from_sample(const View<T>& view, std::int64_t sample) {
  View<T> moved = view;
  moved.data += sample * view.n;
  return moved;
}

template <class T>
Correlation<T> correlation(const ConvPass& pass, const Window& window, const T* in,
                           const std::vector<T>& weights, const T* bias, T* out,
                           std::int64_t rows) {
  return {.in = in,
          .window = window,
          .weights = weights.data(),
          .bias = bias,
          .out = out,
          .out_channels = pass.out,
          .rows = rows,
          .columns = pass.output.w,
          .groups = pass.groups,
          .kernel = pass.kernel,
          .stride = pass.stride,
          .dilation = pass.dilation};
}

/// Returns the window that shows whole rows of a tensor's images.
Window rows_of(std::int64_t channels, const Pair& image, std::int64_t row, std::int64_t rows) {
  return {.channels = channels,
          .row = row,
          .rows = rows,
          .column = 0,
          .columns = image.w,
          .image = image,
          .insert = {}};
}

/// Output gradient of a convolution: a tensor, or the gradient after ReLU and pooling with the
/// winners. One per thread.
template <class T>
class OutputGradient {
 public:
  OutputGradient(const ConvGeometry& g, const View<const T>& view, const std::uint8_t* winners)
      : kernels_(conv_kernels<T>(base::simd_level())),
        view_(view),
        winners_(winners),
        channels_(g.out),
        pooled_{g.output.h / 2, g.output.w / 2},
        packed_(winners == nullptr ? 0 : block_elements()) {}

  /// Fills `block` with the part of block number `index` that `window` shows.
  void fill(std::int64_t index, const Lanes& lanes, Window window, T* block) {
    const View<const T> samples = from_sample(view_, lanes.first);
    if (winners_ == nullptr) return kernels_.pack(samples, lanes.used, window, block);
    if (index != packed_index_)
      kernels_.pack(samples, lanes.used, rows_of(channels_, pooled_, 0, pooled_.h), packed_.get());
    packed_index_ = index;
    window.image = {2 * pooled_.h, 2 * pooled_.w};
    kernels_.unpool(packed_.get(), winners_ + index * block_elements(), window, block);
  }

 private:
  std::int64_t block_elements() const { return channels_ * pooled_.h * pooled_.w * kernels_.lanes; }

  const ConvKernels<T>& kernels_;
  View<const T> view_;
  const std::uint8_t* winners_;
  std::int64_t channels_;
  Pair pooled_;
  Block<T> packed_;
  std::int64_t packed_index_ = -1;
};

template <class T>
void input_gradient(const ConvGeometry& g, const T* weight, const View<const T>& gradient,
                    const std::uint8_t* winners, const View<T>& input, const Parallel& parallel) {
  const ConvKernels<T>& kernels = conv_kernels<T>(base::simd_level());
  const ConvPass pass = input_pass(g);
  const Cut cut = cut_of<T>(pass, g.batch);
  const std::vector<T> weights = tile_turned(g, weight);
  parallel(cut.tasks(), [&](std::int64_t begin, std::int64_t end) {
    OutputGradient<T> source(g, gradient, winners);
    const Block<T> in(pass.window(0, cut.band).pixels() * cut.lanes);
    const Block<T> out(pass.out * cut.band * pass.output.w * cut.lanes);
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t index = task / cut.bands();
      const Lanes lanes = cut.block(index);
      const std::int64_t row = cut.first_row(task % cut.bands());
      const std::int64_t rows = cut.band_rows(task % cut.bands());
      const Window window = pass.window(row, rows);
      source.fill(index, lanes, window, in.get());
      kernels.correlate(correlation<T>(pass, window, in.get(), weights, nullptr, out.get(), rows));
      kernels.unpack(out.get(), lanes.used, rows_of(pass.out, pass.output, row, rows),
                     from_sample(input, lanes.first));
    }
  });
}

/// Number of chunks of blocks with separate sums, and thereby the most threads that find work.
constexpr std::int64_t kChunks = 16;

template <class T>
void weight_gradient(const ConvGeometry& g, const View<const T>& input,
                     const View<const T>& gradient, const std::uint8_t* winners, T* weight, T* bias,
                     const Parallel& parallel) {
  const ConvKernels<T>& kernels = conv_kernels<T>(base::simd_level());
  const ConvPass pass = forward_pass(g);
  const Cut cut = cut_of<T>(pass, g.batch);
  const std::int64_t chunks = std::min(kChunks, cut.blocks());
  const std::int64_t numbers = g.weights() + g.out;
  std::vector<T> sums(static_cast<std::size_t>(chunks * numbers));
  parallel(chunks, [&](std::int64_t begin, std::int64_t end) {
    OutputGradient<T> source(g, gradient, winners);
    const Block<T> in(pass.window(0, cut.band).pixels() * cut.lanes);
    const Block<T> deltas(pass.out * cut.band * pass.output.w * cut.lanes);
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      T* const sum = sums.data() + chunk * numbers;
      const std::int64_t last = (chunk + 1) * cut.blocks() / chunks;
      for (std::int64_t index = chunk * cut.blocks() / chunks; index < last; ++index) {
        const Lanes lanes = cut.block(index);
        for (std::int64_t band = 0; band < cut.bands(); ++band) {
          const std::int64_t row = cut.first_row(band);
          const std::int64_t rows = cut.band_rows(band);
          const Window window = pass.window(row, rows);
          kernels.pack(from_sample(input, lanes.first), lanes.used, window, in.get());
          source.fill(index, lanes, rows_of(g.out, g.output, row, rows), deltas.get());
          kernels.add_weight_gradient({.in = in.get(),
                                       .window = window,
                                       .gradient = deltas.get(),
                                       .out_channels = g.out,
                                       .rows = rows,
                                       .columns = g.output.w,
                                       .groups = g.groups,
                                       .kernel = g.kernel,
                                       .stride = g.stride,
                                       .dilation = g.dilation,
                                       .weight = sum,
                                       .bias = bias != nullptr ? sum + g.weights() : nullptr});
        }
      }
    }
  });
  const auto gather = [&](T* to, std::int64_t offset, std::int64_t count) {
    std::fill_n(to, count, T{0});
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
      for (std::int64_t i = 0; i < count; ++i)
        to[i] += sums[static_cast<std::size_t>(chunk * numbers + offset + i)];
  };
  if (weight != nullptr) gather(weight, 0, g.weights());
  if (bias != nullptr) gather(bias, g.weights(), g.out);
}

template <class T>
void backward(const ConvGeometry& g, const View<const T>& input, const T* weight,
              const View<const T>& gradient, const std::uint8_t* winners,
              const ConvGradients<T>& wanted, const Parallel& parallel) {
  if (wanted.weight != nullptr || wanted.bias != nullptr)
    weight_gradient(g, input, gradient, winners, wanted.weight, wanted.bias, parallel);
  if (wanted.input.data != nullptr)
    input_gradient(g, weight, gradient, winners, wanted.input, parallel);
}

}  // namespace

template <class T>
const ConvKernels<T>& conv_kernels(base::Simd level) {
  constexpr bool single = sizeof(T) == sizeof(float);
  const auto choose = [](const auto& of_float, const auto& of_double) -> const ConvKernels<T>& {
    if constexpr (single)
      return of_float;
    else
      return of_double;
  };
#if defined(__x86_64__)
  if (level == base::Simd::avx512) return choose(kAvx512Float, kAvx512Double);
  if (level == base::Simd::avx2) return choose(kAvx2Float, kAvx2Double);
#endif
  static_cast<void>(level);
  return choose(kScalarFloat, kScalarDouble);
}

template <class T>
void conv_forward(const ConvGeometry& g, const View<const T>& input, const T* weight, const T* bias,
                  const View<T>& output, const Parallel& parallel) {
  const ConvKernels<T>& kernels = conv_kernels<T>(base::simd_level());
  const ConvPass pass = forward_pass(g);
  const Cut cut = cut_of<T>(pass, g.batch);
  const std::vector<T> weights = tile_forward(g, weight);
  parallel(cut.tasks(), [&](std::int64_t begin, std::int64_t end) {
    const Block<T> in(pass.window(0, cut.band).pixels() * cut.lanes);
    const Block<T> out(pass.out * cut.band * pass.output.w * cut.lanes);
    for (std::int64_t task = begin; task < end; ++task) {
      const Lanes lanes = cut.block(task / cut.bands());
      const std::int64_t row = cut.first_row(task % cut.bands());
      const std::int64_t rows = cut.band_rows(task % cut.bands());
      const Window window = pass.window(row, rows);
      kernels.pack(from_sample(input, lanes.first), lanes.used, window, in.get());
      kernels.correlate(correlation(pass, window, in.get(), weights, bias, out.get(), rows));
      kernels.unpack(out.get(), lanes.used, rows_of(pass.out, pass.output, row, rows),
                     from_sample(output, lanes.first));
    }
  });
}

template <class T>
void conv_backward(const ConvGeometry& g, const View<const T>& input, const T* weight,
                   const View<const T>& gradient, const ConvGradients<T>& wanted,
                   const Parallel& parallel) {
  backward<T>(g, input, weight, gradient, nullptr, wanted, parallel);
}

bool can_fuse(const ConvGeometry& g) {
  return g.stride.h == 1 && g.stride.w == 1 && g.padding.h <= g.dilation.h * (g.kernel.h - 1) &&
         g.padding.w <= g.dilation.w * (g.kernel.w - 1) && g.output.h >= 2 && g.output.w >= 2;
}

template <class T>
std::int64_t ConvReluPool::winner_bytes() const {
  const std::int64_t lanes = conv_kernels<T>(base::simd_level()).lanes;
  return (conv.batch + lanes - 1) / lanes * lanes * conv.out * pooled().h * pooled().w;
}

template <class T>
void conv_relu_pool_forward(const ConvReluPool& op, const View<const T>& input, const T* weight,
                            const T* bias, const View<T>& output, std::uint8_t* winners,
                            const Parallel& parallel) {
  const ConvGeometry& g = op.conv;
  const ConvKernels<T>& kernels = conv_kernels<T>(base::simd_level());
  const ConvPass pass = forward_pass(g);
  const Cut cut = cut_of<T>(pass, g.batch, /*multiple=*/2);
  const std::vector<T> weights = tile_forward(g, weight);
  const Pair pooled = op.pooled();
  parallel(cut.tasks(), [&](std::int64_t begin, std::int64_t end) {
    const Block<T> in(pass.window(0, cut.band).pixels() * cut.lanes);
    const Block<T> sums(pass.out * cut.band * pass.output.w * cut.lanes);
    const Block<T> out(pass.out * cut.band / 2 * pooled.w * cut.lanes);
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t index = task / cut.bands();
      const Lanes lanes = cut.block(index);
      const std::int64_t row = cut.first_row(task % cut.bands());
      const std::int64_t rows = cut.band_rows(task % cut.bands());
      const Window window = pass.window(row, rows);
      kernels.pack(from_sample(input, lanes.first), lanes.used, window, in.get());
      kernels.correlate(correlation(pass, window, in.get(), weights, bias, sums.get(), rows));
      const std::int64_t channel = pooled.h * pooled.w * cut.lanes;
      kernels.relu_pool(sums.get(), g.out, {rows, g.output.w}, out.get(),
                        winners + index * g.out * channel + row / 2 * pooled.w * cut.lanes,
                        channel);
      kernels.unpack(out.get(), lanes.used, rows_of(g.out, pooled, row / 2, rows / 2),
                     from_sample(output, lanes.first));
    }
  });
}

template <class T>
void conv_relu_pool_backward(const ConvReluPool& op, const View<const T>& input, const T* weight,
                             const View<const T>& gradient, const std::uint8_t* winners,
                             const ConvGradients<T>& wanted, const Parallel& parallel) {
  backward(op.conv, input, weight, gradient, winners, wanted, parallel);
}

#define MILLRACE_INSTANTIATE(T)                                                                   \
  template const ConvKernels<T>& conv_kernels(base::Simd);                                        \
  template void conv_forward(const ConvGeometry&, const View<const T>&, const T*, const T*,       \
                             const View<T>&, const Parallel&);                                    \
  template void conv_backward(const ConvGeometry&, const View<const T>&, const T*,                \
                              const View<const T>&, const ConvGradients<T>&, const Parallel&);    \
  template std::int64_t ConvReluPool::winner_bytes<T>() const;                                    \
  template void conv_relu_pool_forward(const ConvReluPool&, const View<const T>&, const T*,       \
                                       const T*, const View<T>&, std::uint8_t*, const Parallel&); \
  template void conv_relu_pool_backward(const ConvReluPool&, const View<const T>&, const T*,      \
                                        const View<const T>&, const std::uint8_t*,                \
                                        const ConvGradients<T>&, const Parallel&);
MILLRACE_INSTANTIATE(float)
MILLRACE_INSTANTIATE(double)
#undef MILLRACE_INSTANTIATE

}  // namespace millrace::train::native
