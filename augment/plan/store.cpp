// Converts, normalises and lays out finished samples.
#include "augment/plan/store.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace millrace::augment {
namespace {

/// Size from which on a sample is written past the caches: a quarter of a typical second-level
/// cache, whose rest a decoder needs.
constexpr std::size_t kPastCaches = 256 << 10;

}  // namespace

std::uint16_t to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;   // not a number
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds to infinity
  const auto halves_to_even = [](std::uint32_t wide, std::uint32_t drop) {
    return (wide + (1u << (drop - 1)) - 1 + (wide >> drop & 1)) >> drop;
  };
  if (magnitude >= 0x38800000u)  // normal: rebias the exponent; a carry moves into it correctly
    return static_cast<std::uint16_t>(sign | halves_to_even(magnitude - 0x38000000u, 13));
  if (magnitude < 0x33000000u) return sign;
  // Subnormal: the mantissa with its leading one, in units of 2^-24.
  const std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  return static_cast<std::uint16_t>(sign | halves_to_even(mantissa, 126 - (magnitude >> 23)));
}

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return static_cast<std::uint16_t>(bits >> 16 | 0x40u);  // stays not-a-number
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

Store::Store(DType dtype, Layout layout, int channels, const std::vector<double>& mean,
             const std::vector<double>& std)
    : dtype_(dtype),
      layout_(layout),
      channels_(channels),
      same_(channels == 1 || (mean.size() == 1 && std.size() == 1)),
      levels_(static_cast<std::size_t>(channels)),
      elements_(static_cast<std::size_t>(channels)) {
  base::simd_level();  // reports a wrong MILLRACE_SIMD here, not on a worker
  for (std::size_t c = 0; c < levels_.size(); ++c) {
    const auto m = static_cast<float>(mean[mean.size() == 1 ? 0 : c]);
    const auto s = static_cast<float>(std[std.size() == 1 ? 0 : c]);
    for (std::size_t level = 0; level < 256; ++level) {
      const float value = (static_cast<float>(level) / 255.0f - m) / s;
      levels_[c][level] = value;
      const std::uint32_t bits = dtype == DType::f16    ? to_f16(value)
                                 : dtype == DType::bf16 ? to_bf16(value)
                                                        : std::bit_cast<std::uint32_t>(value);
      elements_[c].bits[level] = bits;
      for (std::size_t b = 0; b < 4; ++b)
        elements_[c].planes[b][level] = static_cast<std::uint8_t>(bits >> (8 * b));
    }
    ElementTable& table = elements_[c];
    table.mean = m;
    stds_.push_back(s);
    table.inverse = 1 / s;
    table.rest = static_cast<float>(1 / double{s} - double{table.inverse});
    table.computed = dtype == DType::f32;
    for (int level = 0; level < 256 && table.computed; ++level) {
      const float value = computed_element(
          level, table, [](float a, float b, float add) { return std::fma(a, b, add); });
      table.computed =
          std::bit_cast<std::uint32_t>(value) == table.bits[static_cast<std::size_t>(level)];
    }
  }
}

void Store::rows(const std::uint8_t* tile, Size size, int y0, int y1, const LevelTable* tables,
                 std::byte* out) const {
  const Kernels& k = kernels();
  const auto convert = dtype_ == DType::u8    ? k.lookup8
                       : dtype_ == DType::f32 ? k.lookup32
                                              : k.lookup16;
  const std::size_t element = size_of(dtype_);
  const auto width = static_cast<std::size_t>(size.width);
  const std::size_t before = width * static_cast<std::size_t>(y0);
  const std::size_t pixels = width * static_cast<std::size_t>(y1 - y0);
  const auto channels = static_cast<std::size_t>(channels_);
  const bool one_table = tables == nullptr && same_;
  const std::size_t plane = width * static_cast<std::size_t>(size.height);
  const bool past_caches = plane * channels * element >= kPastCaches;
  if (layout_ == Layout::hwc || channels_ == 1) {
    convert(tile, pixels * channels,
            {elements_.data(), tables, one_table ? 1 : channels_, past_caches},
            out + before * channels * element);
    return;
  }
  for (std::size_t c = 0; c < channels; ++c)
    convert(tile + c * pixels, pixels,
            {&elements_[c], tables == nullptr ? nullptr : &tables[c], 1, past_caches},
            out + (c * plane + before) * element);
}

void Store::floats(const float* values, Size size, std::byte* out) const {
  const auto pixels = static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height);
  const auto channels = static_cast<std::size_t>(channels_);
  const std::size_t element = size_of(dtype_);
  const bool planar = layout_ == Layout::chw;
  for (std::size_t c = 0; c < channels; ++c) {
    const float mean = elements_[c].mean, std = stds_[c];
    std::byte* to = out + (planar ? c * pixels : c) * element;
    const std::size_t step = (planar ? 1 : channels) * element;
    const auto each = [&](const auto& converted) {
      const float* from = values + c;
      for (std::size_t i = 0; i < pixels; ++i, from += channels, to += step) {
        const auto bits = converted(*from);
        std::memcpy(to, &bits, sizeof bits);
      }
    };
    const auto normal = [&](float value) { return (value - mean) / std; };
    switch (dtype_) {
      case DType::f32:
        each(normal);
        break;
      case DType::f16:
        each([&](float value) { return to_f16(normal(value)); });
        break;
      case DType::bf16:
        each([&](float value) { return to_bf16(normal(value)); });
        break;
      case DType::u8:
        each([](float value) {  // also of a value that is no number: 0
          return static_cast<std::uint8_t>(value > 0 ? std::min(value, 1.0f) * 255 + 0.5f : 0.0f);
        });
    }
  }
}

}  // namespace millrace::augment
