// Samples an image at displaced positions.
#include "augment/ops/displace.h"

#include <algorithm>

#include "augment/plan/wide.h"

namespace millrace::augment {
namespace {

constexpr int kBits = 11;
constexpr int kOne = 1 << kBits;
constexpr int kRun = 256;  ///< pixels whose positions are computed at once

struct Positions {
  std::int32_t x[kRun], y[kRun];    ///< upper left tap, or the pixel itself
  std::int32_t wx[kRun], wy[kRun];  ///< weights of the right and the lower tap
};

/// Computes positions along one axis: first + i * step + by[i], limited to two pixels around the
/// image. The limit changes nothing, as everything farther out shows the fill.
void positions(const float* by, int first, int step, int count, int size, bool bilinear,
               std::int32_t* at, std::int32_t* weight) {
  wide(
      [](const float* __restrict d, int start, int s, int n, int most, bool linear,
         std::int32_t* __restrict place, std::int32_t* __restrict part) MILLRACE_WIDE {
        const auto limit = static_cast<float>(most + 1);
        for (int i = 0; i < n; ++i) {
          float u = static_cast<float>(start + i * s) + d[i];
          u = u > -2 ? u : -2;
          u = u < limit ? u : limit;
          if (linear) {
            const int fixed = static_cast<int>((u + 2) * kOne + 0.5f) - 2 * kOne;
            place[i] = fixed >> kBits;
            part[i] = fixed & (kOne - 1);
          } else {
            constexpr float kRound =
                12582912.0f;  // 1.5 * 2^23 shifts the fraction out of the mantissa
            place[i] = static_cast<int>((u + kRound) - kRound);
          }
        }
      },
      by, first, step, count, size, bilinear, at, weight);
}

template <int kChannels>
void nearest(const ConstImage& from, const Positions& p, int count, const std::uint8_t* fill,
             std::uint8_t* out) {
  for (int i = 0; i < count; ++i, out += kChannels) {
    const bool inside = static_cast<unsigned>(p.x[i]) < static_cast<unsigned>(from.width) &&
                        static_cast<unsigned>(p.y[i]) < static_cast<unsigned>(from.height);
    const std::uint8_t* in = inside ? from.data + p.y[i] * from.row + p.x[i] * kChannels : fill;
    for (int c = 0; c < kChannels; ++c) out[c] = in[c];
  }
}

template <int kChannels>
void bilinear(const ConstImage& from, const Positions& p, int count, const std::uint8_t* fill,
              std::uint8_t* out) {
  const auto width = static_cast<unsigned>(from.width), height = static_cast<unsigned>(from.height);
  for (int i = 0; i < count; ++i, out += kChannels) {
    const int x = p.x[i], y = p.y[i];
    const std::uint8_t* taps[4];
    const std::uint8_t* corner = from.data + y * from.row + x * kChannels;
    if (static_cast<unsigned>(x) < width - 1 && static_cast<unsigned>(y) < height - 1) {
      taps[0] = corner;
      taps[1] = corner + kChannels;
      taps[2] = corner + from.row;
      taps[3] = corner + from.row + kChannels;
    } else {
      for (int t = 0; t < 4; ++t) {
        const int tx = x + (t & 1), ty = y + (t >> 1);
        const bool inside = static_cast<unsigned>(tx) < width && static_cast<unsigned>(ty) < height;
        taps[t] = inside ? from.data + ty * from.row + tx * kChannels : fill;
      }
    }
    const int right = p.wx[i], left = kOne - right, lower = p.wy[i], upper = kOne - lower;
    for (int c = 0; c < kChannels; ++c) {
      const int above = taps[0][c] * left + taps[1][c] * right;
      const int below = taps[2][c] * left + taps[3][c] * right;
      out[c] = static_cast<std::uint8_t>((above * upper + below * lower + kOne * kOne / 2) >>
                                         (2 * kBits));
    }
  }
}

}  // namespace

void displace(const ConstImage& from, const Displacement& by, Interpolation interpolation,
              const std::uint8_t (&fill)[4], const Image& to) {
  const bool linear = interpolation == Interpolation::bilinear;
  const auto run = from.channels == 1 ? (linear ? bilinear<1> : nearest<1>)
                                      : (linear ? bilinear<3> : nearest<3>);
  Positions at;
  for (int y = 0; y < to.height; ++y)
    for (int x = 0; x < to.width; x += kRun) {
      const int count = std::min(kRun, to.width - x);
      const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(y) * to.width + x;
      positions(by.x + first, x, 1, count, from.width, linear, at.x, at.wx);
      positions(by.y + first, y, 0, count, from.height, linear, at.y, at.wy);
      run(from, at, count, fill, to.data + y * to.row + x * to.channels);
    }
}

}  // namespace millrace::augment
