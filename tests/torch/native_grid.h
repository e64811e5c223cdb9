// Shapes for the native ops, and helpers common to the tests of convolution and pooling.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "base/simd.h"
#include "models/native/ops.h"

namespace millrace::test {

/// Convolution of `batch` x `in` images.
struct ConvCase {
  std::int64_t batch, in, out;
  std::vector<std::int64_t> image, kernel, stride, padding, dilation;
  std::int64_t groups;
};

inline const std::vector<ConvCase>& conv_cases() {
  static const std::vector<ConvCase> cases{
      {64, 1, 6, {28, 28}, {5, 5}, {1, 1}, {2, 2}, {1, 1}, 1},  // from LeNet
      {64, 6, 16, {14, 14}, {5, 5}, {1, 1}, {0, 0}, {1, 1}, 1},
      {33, 3, 6, {9, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1},
      {1, 3, 5, {7, 8}, {3, 2}, {1, 1}, {1, 0}, {1, 1}, 1},
      {0, 2, 3, {6, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1},
      {17, 4, 8, {11, 9}, {3, 3}, {2, 3}, {1, 2}, {1, 1}, 1},
      {5, 4, 7, {13, 12}, {3, 2}, {2, 1}, {3, 4}, {2, 3}, 1},  // padding beyond the reach
      {18, 6, 4, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 2},
      {16, 5, 5, {6, 7}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 5},  // depthwise
      {3, 2, 9, {5, 5}, {5, 5}, {1, 1}, {0, 0}, {1, 1}, 1},   // one output pixel
      {2, 13, 11, {4, 4}, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1},
      {2, 3, 3, {6, 6}, {1, 1}, {1, 1}, {1, 2}, {1, 1}, 1},
      {2, 2, 3, {10, 23}, {7, 7}, {4, 4}, {3, 3}, {1, 1}, 1},
      {20, 24, 26, {40, 33}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1},  // several bands of rows
  };
  return cases;
}

inline std::string text_of(const ConvCase& c) {
  const auto pair = [](const std::vector<std::int64_t>& p) {
    return std::to_string(p[0]) + "," + std::to_string(p[1]);
  };
  return std::to_string(c.batch) + "x" + std::to_string(c.in) + "->" + std::to_string(c.out) +
         " image " + pair(c.image) + " kernel " + pair(c.kernel) + " stride " + pair(c.stride) +
         " padding " + pair(c.padding) + " dilation " + pair(c.dilation) + " groups " +
         std::to_string(c.groups);
}

/// Prints the name of a test; GoogleTest's default prints bytes of pointers.
inline void PrintTo(const ConvCase& c, std::ostream* out) { *out << text_of(c); }

enum class Lying { planes, pixels, batch_last, every_second };
inline constexpr Lying kLyings[] = {Lying::planes, Lying::pixels, Lying::batch_last,
                                    Lying::every_second};

/// Returns the same values in another memory order.
inline torch::Tensor lay(const torch::Tensor& tensor, Lying lying) {
  if (lying == Lying::pixels) return tensor.contiguous(torch::MemoryFormat::ChannelsLast);
  if (lying == Lying::batch_last)
    return tensor.permute({1, 2, 3, 0}).contiguous().permute({3, 0, 1, 2});
  if (lying == Lying::every_second)
    return torch::stack({tensor, tensor}, -1).flatten(3).slice(3, 0, 2 * tensor.size(3), 2);
  return tensor.contiguous();
}

inline std::vector<base::Simd> levels() {
  std::vector<base::Simd> all;
  for (const base::Simd level : {base::Simd::scalar, base::Simd::avx2, base::Simd::avx512})
    if (level <= base::simd_supported()) all.push_back(level);
  return all;
}

/// Restores the SIMD level at the end of a test.
class KeptLevel {
 public:
  KeptLevel() : level_(base::simd_level()) {}
  ~KeptLevel() { base::set_simd_level(level_); }
  KeptLevel(const KeptLevel&) = delete;
  KeptLevel& operator=(const KeptLevel&) = delete;

 private:
  base::Simd level_;
};

/// Returns max |a - b| relative to the largest |b|. NaNs must be at the same places.
inline double difference(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.sizes() != b.sizes()) return std::numeric_limits<double>::infinity();
  if (b.numel() == 0) return 0;
  if (!torch::equal(a.isnan(), b.isnan())) return std::numeric_limits<double>::infinity();
  const torch::Tensor exact = b.detach().to(torch::kDouble).nan_to_num();
  const double worst =
      (a.detach().to(torch::kDouble).nan_to_num() - exact).abs().max().item<double>();
  return worst / std::max(exact.abs().max().item<double>(), 1e-30);
}

/// Returns whether all bits are equal, NaN or not.
inline bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  const auto bits = [](const torch::Tensor& t) {
    return t.contiguous().view(t.scalar_type() == torch::kDouble ? torch::kLong : torch::kInt);
  };
  return a.sizes() == b.sizes() && torch::equal(bits(a), bits(b));
}

}  // namespace millrace::test
