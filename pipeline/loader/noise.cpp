// Fills slots with noise.
#include "pipeline/loader/noise.h"

#include <algorithm>
#include <cstring>

#include "base/rng.h"
#include "pipeline/targets/object_list.h"

namespace millrace::pipeline {

namespace {

/// Returns an IEEE 754 number with 1 + exponent + mantissa bits that is finite and neither tiny nor
/// large.
std::uint32_t number(std::uint64_t random, unsigned exponent_bits, unsigned mantissa_bits) {
  const std::uint32_t bias = (1u << (exponent_bits - 1)) - 1;
  const std::uint32_t exponent = bias - static_cast<std::uint32_t>(random >> 33 & 3);
  const auto mantissa = static_cast<std::uint32_t>(random & ((1u << mantissa_bits) - 1));
  const auto sign = static_cast<std::uint32_t>(random >> 32 & 1);
  return ((sign << exponent_bits | exponent) << mantissa_bits) | mantissa;
}

std::uint32_t element(std::uint64_t random, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return number(random, 8, 23);
    case DType::f16:
      return number(random, 5, 10);
    case DType::bf16:
      return number(random, 8, 7);
    case DType::u8:
      break;
  }
  return static_cast<std::uint32_t>(random & 0xff);
}

}  // namespace

void fill_with_noise(Slot& slot, std::uint64_t seed, std::size_t samples,
                     const Transform& transform, const DatasetInfo& dataset) {
  const SampleSpec& spec = transform.output();
  const std::size_t size = size_of(spec.dtype);
  const std::uint64_t key = base::mix64(seed + 1);
  std::uint8_t* out = slot.memory.data();
  for (std::size_t i = 0; i < samples * spec.elements(); ++i) {
    const std::uint32_t value = element(base::mix64(key + i), spec.dtype);
    std::memcpy(out + i * size, &value, size);  // little endian: the low bytes come first
  }
  const std::size_t classes = dataset.classes.size();
  for (std::size_t i = 0; i < samples; ++i)
    slot.labels[i] = static_cast<std::int64_t>((seed * samples + i) % classes);
  std::fill(slot.probabilities.begin(), slot.probabilities.end(), 0.0f);
  const auto row = static_cast<std::size_t>(transform.soft_classes());
  for (std::size_t i = 0; row > 0 && i < samples; ++i)
    slot.probabilities[i * row + static_cast<std::size_t>(slot.labels[i])] = 1;
  slot.objects.offsets.assign(samples + 1, 0);
  std::fill(slot.masks.begin(), slot.masks.end(), std::uint8_t{0});
  slot.kept = static_cast<std::int64_t>(samples);
}

}  // namespace millrace::pipeline
