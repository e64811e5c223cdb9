// Levels to elements of the batch, by table.
#include <cstring>

#include "augment/kernels/kernels.h"

namespace millrace {
namespace {

template <class Element, int kPeriod, bool kLevels>
void look_up(const std::uint8_t* in, std::size_t n, const Lookup& lookup, std::byte* out) {
  std::size_t c = 0;
  for (std::size_t i = 0; i < n; ++i) {
    std::uint8_t level = in[i];
    if constexpr (kLevels) level = lookup.levels[c][level];
    Element element = level;
    if constexpr (sizeof(Element) > 1)
      element = static_cast<Element>(lookup.elements[c].bits[level]);
    std::memcpy(out + i * sizeof(Element), &element, sizeof(Element));
    if constexpr (kPeriod > 1) c = c + 1 == kPeriod ? 0 : c + 1;
  }
}

template <class Element>
void look_up(const std::uint8_t* in, std::size_t n, const Lookup& lookup, std::byte* out) {
  const bool levels = lookup.levels != nullptr;
  if (lookup.period == 1)
    (levels ? look_up<Element, 1, true> : look_up<Element, 1, false>)(in, n, lookup, out);
  else
    (levels ? look_up<Element, 3, true> : look_up<Element, 3, false>)(in, n, lookup, out);
}

}  // namespace

void add_lookup_kernels(Simd, Kernels& table) {
  table.lookup8 = look_up<std::uint8_t>;
  table.lookup16 = look_up<std::uint16_t>;
  table.lookup32 = look_up<std::uint32_t>;
}

}  // namespace millrace
