#include "measure/quantiles.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace millrace::measure {

// Each number below kParts has a class of its own; [2^k, 2^(k+1)) has kParts classes of equal
// width.
void Quantiles::add(double seconds) {
  const double most = std::ldexp(1.0, kOctaves) - 1;
  const auto ns = static_cast<std::uint64_t>(std::clamp(seconds * 1e9, 0.0, most));
  const unsigned octave = ns < kParts ? 0 : static_cast<unsigned>(std::bit_width(ns / kParts));
  const std::uint64_t place = octave == 0 ? ns : (ns >> (octave - 1)) - kParts;
  ++counts_[std::min<std::size_t>(octave * kParts + place, counts_.size() - 1)];
  ++count_;
}

double Quantiles::at(double q, std::uint64_t zeros) const {
  const auto all = static_cast<double>(count_ + zeros);
  const auto wanted = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::ceil(q * all)));
  if (count_ == 0 || wanted <= zeros) return 0;
  std::uint64_t seen = zeros;
  std::size_t i = 0;
  while (i + 1 < counts_.size() && (seen += counts_[i]) < wanted) ++i;
  return middle(i);
}

void Quantiles::add(const Quantiles& other) {
  for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
}

std::vector<Quantiles::Class> Quantiles::classes() const {
  std::vector<Class> all;
  for (std::size_t i = 0; i < counts_.size(); ++i)
    if (counts_[i] > 0) all.push_back({middle(i), counts_[i]});
  return all;
}

double Quantiles::middle(std::size_t i) {
  const auto octave = static_cast<unsigned>(i / kParts);
  const auto place = static_cast<double>(i % kParts);
  if (octave == 0) return place * 1e-9;
  return std::ldexp(place + kParts + 0.5, static_cast<int>(octave) - 1) * 1e-9;
}

}  // namespace millrace::measure
