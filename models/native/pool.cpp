// Compiles one source for three instruction sets; the compiler vectorises it.
#include <algorithm>
#include <limits>
#include <vector>

#include "models/native/kernels.h"

namespace millrace::train::native {
namespace {

/// kStep and kIndexStep are the line's steps if known at compile time; 0: any.
template <class T, int kStep>
__attribute__((always_inline)) inline void take_tap(const PoolLine<T>& line,
                                                    const PoolTap<T>& tap) {
  const std::int64_t step = kStep == 0 ? line.step : kStep;
  const T* const in = tap.in;
  T* const best = line.best;
  std::int32_t* const winners = line.winners;
  const std::int32_t first = tap.index;
  const std::int32_t index_step = line.index_step;
  const std::int64_t end = tap.end;
#pragma GCC ivdep
  for (std::int64_t i = tap.begin; i < end; ++i) {
    const T value = in[i * step];
    const bool wins = (value > best[i]) | (value != value) | (winners[i] < 0);
    best[i] = wins ? value : best[i];
    winners[i] = wins ? first + static_cast<std::int32_t>(i) * index_step : winners[i];
  }
}

template <class T>
__attribute__((always_inline)) inline void pool_line(const PoolLine<T>& line) {
  std::fill_n(line.best, line.count, -std::numeric_limits<T>::infinity());
  std::fill_n(line.winners, line.count, -1);
  for (std::int64_t k = 0; k < line.tap_count; ++k) {
    if (line.step == 1)
      take_tap<T, 1>(line, line.taps[k]);
    else if (line.step == 2)
      take_tap<T, 2>(line, line.taps[k]);
    else
      take_tap<T, 0>(line, line.taps[k]);
  }
}

template <class T>
void scalar(const PoolLine<T>& line) {
  pool_line(line);
}
#if defined(__x86_64__)
template <class T>
__attribute__((target("avx2,fma"))) void avx2(const PoolLine<T>& line) {
  pool_line(line);
}
template <class T>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) void avx512(const PoolLine<T>& line) {
  pool_line(line);
}
#endif

}  // namespace

template <class T>
PoolLineKernel<T> pool_line_kernel(base::Simd level) {
#if defined(__x86_64__)
  if (level == base::Simd::avx512) return avx512<T>;
  if (level == base::Simd::avx2) return avx2<T>;
#endif
  static_cast<void>(level);
  return scalar<T>;
}

template PoolLineKernel<float> pool_line_kernel(base::Simd);
template PoolLineKernel<double> pool_line_kernel(base::Simd);

// Divides a pooling into lines, and finds the pixels in their windows.
namespace {

/// Outputs [begin, end) of `count` whose tap at i * stride + offset falls within `side` pixels.
struct Range {
  std::int64_t begin, end;
};
Range inside(std::int64_t offset, std::int64_t stride, std::int64_t side, std::int64_t count) {
  const std::int64_t begin = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
  const std::int64_t end = offset >= side ? 0 : (side - 1 - offset) / stride + 1;
  return {std::min(begin, count), std::clamp(end, std::min(begin, count), count)};
}

/// Adjacent elements that are computed together: channels or samples of a pixel, or the columns of
/// one plane.
enum class Along { channels, samples, columns };

template <class T, class U>
Along along(const PoolGeometry& g, const View<T>& a, const View<U>& b) {
  if (g.channels > 1 && a.c == 1 && b.c == 1) return Along::channels;
  if (g.batch > 1 && a.n == 1 && b.n == 1) return Along::samples;
  return Along::columns;
}

/// Returns the number of tasks: samples, channels or planes, depending on `along`.
std::int64_t task_count(const PoolGeometry& g, Along along) {
  if (along == Along::channels) return g.batch;
  return along == Along::samples ? g.channels : g.batch * g.channels;
}

/// Returns a task's first element.
template <class T>
T* task_begin(const PoolGeometry& g, Along along, const View<T>& view, std::int64_t task) {
  if (along == Along::channels) return view.data + task * view.n;
  if (along == Along::samples) return view.data + task * view.c;
  return view.at(task / g.channels, task % g.channels);
}

/// Returns the number of adjacent elements per pixel, for channels and samples.
std::int64_t lanes_of(const PoolGeometry& g, Along along) {
  return along == Along::channels ? g.channels : along == Along::samples ? g.batch : 1;
}

template <class T>
class Forward {
 public:
  Forward(const PoolGeometry& g, const View<const T>& in, const View<T>& out,
          const View<std::int32_t>& winners, Along along)
      : g_(g),
        in_(in),
        out_(out),
        winners_(winners),
        along_(along),
        kernel_(pool_line_kernel<T>(base::simd_level())),
        taps_(static_cast<std::size_t>(g.kernel.h * g.kernel.w)),
        best_(static_cast<std::size_t>(std::max(g.output.w, lanes_of(g, along)))),
        index_(best_.size()) {}

  void run(std::int64_t task) {
    const T* const in = task_begin(g_, along_, in_, task);
    T* const out = task_begin(g_, along_, out_, task);
    std::int32_t* const winners = task_begin(g_, along_, winners_, task);
    for (std::int64_t y = 0; y < g_.output.h; ++y) {
      if (along_ == Along::columns) {
        row(in, y);
        for (std::int64_t x = 0; x < g_.output.w; ++x) {
          out[y * out_.h + x * out_.w] = best_[static_cast<std::size_t>(x)];
          winners[y * winners_.h + x * winners_.w] = index_[static_cast<std::size_t>(x)];
        }
      } else {
        for (std::int64_t x = 0; x < g_.output.w; ++x) {
          pixel(in, y, x);
          std::copy_n(best_.data(), lanes_of(g_, along_), out + y * out_.h + x * out_.w);
          std::copy_n(index_.data(), lanes_of(g_, along_),
                      winners + y * winners_.h + x * winners_.w);
        }
      }
    }
  }

 private:
  /// Computes row `y` of one plane's outputs.
  void row(const T* in, std::int64_t y) {
    std::size_t taps = 0;
    for (std::int64_t ky = 0; ky < g_.kernel.h; ++ky) {
      const std::int64_t iy = y * g_.stride.h + ky * g_.dilation.h - g_.padding.h;
      if (iy < 0 || iy >= g_.input.h) continue;
      for (std::int64_t kx = 0; kx < g_.kernel.w; ++kx) {
        const std::int64_t ix = kx * g_.dilation.w - g_.padding.w;
        const Range range = inside(ix, g_.stride.w, g_.input.w, g_.output.w);
        taps_[taps++] = {in + iy * in_.h + ix * in_.w, range.begin, range.end, index_of(iy, ix)};
      }
    }
    kernel_({taps_.data(), static_cast<std::int64_t>(taps), g_.stride.w * in_.w,
             static_cast<std::int32_t>(g_.stride.w), g_.output.w, best_.data(), index_.data()});
  }

  /// Computes all lanes of output (y, x).
  void pixel(const T* in, std::int64_t y, std::int64_t x) {
    std::size_t taps = 0;
    const std::int64_t lanes = lanes_of(g_, along_);
    for (std::int64_t ky = 0; ky < g_.kernel.h; ++ky) {
      const std::int64_t iy = y * g_.stride.h + ky * g_.dilation.h - g_.padding.h;
      if (iy < 0 || iy >= g_.input.h) continue;
      for (std::int64_t kx = 0; kx < g_.kernel.w; ++kx) {
        const std::int64_t ix = x * g_.stride.w + kx * g_.dilation.w - g_.padding.w;
        if (ix < 0 || ix >= g_.input.w) continue;
        taps_[taps++] = {in + iy * in_.h + ix * in_.w, 0, lanes, index_of(iy, ix)};
      }
    }
    kernel_(
        {taps_.data(), static_cast<std::int64_t>(taps), 1, 0, lanes, best_.data(), index_.data()});
  }

  std::int32_t index_of(std::int64_t iy, std::int64_t ix) const {
    return static_cast<std::int32_t>(iy * g_.input.w + ix);
  }

  const PoolGeometry& g_;
  View<const T> in_;
  View<T> out_;
  View<std::int32_t> winners_;
  Along along_;
  PoolLineKernel<T> kernel_;
  std::vector<PoolTap<T>> taps_;
  std::vector<T> best_;
  std::vector<std::int32_t> index_;
};

}  // namespace

template <class T>
void max_pool_forward(const PoolGeometry& g, const View<const T>& input, const View<T>& output,
                      const View<std::int32_t>& winners, const Parallel& parallel) {
  const Along kind = along(g, input, output);
  parallel(task_count(g, kind), [&](std::int64_t begin, std::int64_t end) {
    Forward<T> forward(g, input, output, winners, kind);
    for (std::int64_t task = begin; task < end; ++task) forward.run(task);
  });
}

template <class T>
void max_pool_backward(const PoolGeometry& g, const View<const T>& gradient,
                       const View<const std::int32_t>& winners, const View<T>& input,
                       const Parallel& parallel) {
  const Along kind = along(g, input, winners);
  const std::int64_t lanes = lanes_of(g, kind);
  // Strides between lanes; `input` and `winners` have adjacent lanes.
  const std::int64_t gradient_lane = kind == Along::channels ? gradient.c : gradient.n;
  const bool dense = input.h == g.input.w * input.w;
  parallel(task_count(g, kind), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      T* const in = task_begin(g, kind, input, task);
      const T* const deltas = task_begin(g, kind, gradient, task);
      const std::int32_t* const index = task_begin(g, kind, winners, task);
      for (std::int64_t y = 0; y < g.input.h; ++y)
        for (std::int64_t x = 0; x < g.input.w; ++x)
          std::fill_n(in + y * input.h + x * input.w, lanes, T{0});
      for (std::int64_t y = 0; y < g.output.h; ++y) {
        for (std::int64_t x = 0; x < g.output.w; ++x) {
          const T* const delta = deltas + y * gradient.h + x * gradient.w;
          const std::int32_t* const from = index + y * winners.h + x * winners.w;
          for (std::int64_t l = 0; l < lanes; ++l) {
            const std::int64_t pixel =
                dense ? from[l] * input.w
                      : from[l] / g.input.w * input.h + from[l] % g.input.w * input.w;
            in[pixel + l] += delta[l * gradient_lane];
          }
        }
      }
    }
  });
}

#define MILLRACE_INSTANTIATE(T)                                                             \
  template void max_pool_forward(const PoolGeometry&, const View<const T>&, const View<T>&, \
                                 const View<std::int32_t>&, const Parallel&);               \
  template void max_pool_backward(const PoolGeometry&, const View<const T>&,                \
                                  const View<const std::int32_t>&, const View<T>&,          \
                                  const Parallel&);
MILLRACE_INSTANTIATE(float)
MILLRACE_INSTANTIATE(double)
#undef MILLRACE_INSTANTIATE

}  // namespace millrace::train::native
