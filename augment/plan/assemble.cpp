// Copies rows of parts and runs of pasted pixels, and weighs labels.
#include "augment/plan/assemble.h"

#include <algorithm>
#include <cstring>

namespace millrace::augment {

void assemble(std::span<const millrace_part> parts, const SampleSpec& form,
              std::span<void* const> samples, Buffer& copies) {
  if (parts.empty() || samples.empty()) return;
  const std::size_t bytes = form.bytes();
  std::uint8_t* const old = copies.reserve(samples.size() * bytes);
  for (std::size_t i = 0; i < samples.size(); ++i) std::memcpy(old + i * bytes, samples[i], bytes);

  const bool planar = form.layout == Layout::chw;
  const auto pixel =
      static_cast<std::ptrdiff_t>(size_of(form.dtype)) * (planar ? 1 : form.channels);
  const std::ptrdiff_t row = form.size.width * pixel;
  for (const millrace_part& part : parts) {
    const millrace_rect& window = part.window;
    auto* const to = static_cast<std::uint8_t*>(samples[static_cast<std::size_t>(part.to)]);
    const std::uint8_t* const from = old + static_cast<std::size_t>(part.from) * bytes;
    const std::ptrdiff_t moved = part.dy * row + part.dx * pixel;
    const auto width = static_cast<std::size_t>((window.x1 - window.x0) * pixel);
    for (int plane = 0; plane < (planar ? form.channels : 1); ++plane)
      for (int y = window.y0; y < window.y1; ++y) {
        const std::ptrdiff_t at =
            (std::ptrdiff_t{plane} * form.size.height + y) * row + window.x0 * pixel;
        std::memcpy(to + at, from + at - moved, width);
      }
  }
}

void assemble_labels(std::span<const millrace_part> parts, Size size, std::size_t classes,
                     std::span<float* const> labels, Buffer& copies) {
  if (parts.empty() || classes == 0) return;
  auto* const old =
      reinterpret_cast<float*>(copies.reserve(labels.size() * classes * sizeof(float)));
  for (std::size_t i = 0; i < labels.size(); ++i)
    std::copy_n(labels[i], classes, old + i * classes);
  const double pixels = static_cast<double>(size.width) * size.height;
  std::int32_t begun = -1;
  for (const millrace_part& part : parts) {
    float* const to = labels[static_cast<std::size_t>(part.to)];
    if (part.to != begun) std::fill_n(to, classes, 0.0f);
    begun = part.to;
    const millrace_rect& window = part.window;
    const double area = static_cast<double>(window.x1 - window.x0) * (window.y1 - window.y0);
    const auto share = static_cast<float>(area / pixels);
    const float* const from = old + static_cast<std::size_t>(part.from) * classes;
    for (std::size_t i = 0; i < classes; ++i) to[i] += share * from[i];
  }
}

namespace {

/// Returns the end of the run of equal bytes that begins at `at`, at most `size`.
std::size_t run_end(const std::uint8_t* bytes, std::size_t at, std::size_t size) {
  const std::uint64_t equal = 0x0101010101010101 * bytes[at];
  for (; at + sizeof equal <= size; at += sizeof equal) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, sizeof word);
    if (word != equal) break;
  }
  const auto first = static_cast<std::uint8_t>(equal);
  while (at < size && bytes[at] == first) ++at;
  return at;
}

}  // namespace

void paste(const SampleSpec& form, void* first, void* second, const std::uint8_t* onto_first,
           const std::uint8_t* onto_second) {
  const bool planar = form.layout == Layout::chw;
  const std::size_t planes = planar ? static_cast<std::size_t>(form.channels) : 1;
  const std::size_t area =
      static_cast<std::size_t>(form.size.width) * static_cast<std::size_t>(form.size.height);
  const std::size_t pixel = form.bytes() / (area * planes);
  std::size_t first_end = 0, second_end = 0;  // of the runs that hold `begin`
  for (std::size_t begin = 0, end = 0; begin < area; begin = end) {
    if (first_end == begin) first_end = run_end(onto_first, begin, area);
    if (second_end == begin) second_end = run_end(onto_second, begin, area);
    end = std::min(first_end, second_end);
    const bool to_first = onto_first[begin] != 0, to_second = onto_second[begin] != 0;
    if (!to_first && !to_second) continue;
    const std::size_t bytes = (end - begin) * pixel;
    for (std::size_t plane = 0; plane < planes; ++plane) {
      const std::size_t at = (plane * area + begin) * pixel;
      auto* const a = static_cast<std::uint8_t*>(first) + at;
      auto* const b = static_cast<std::uint8_t*>(second) + at;
      if (to_first && to_second)
        std::swap_ranges(a, a + bytes, b);
      else
        std::memcpy(to_first ? a : b, to_first ? b : a, bytes);
    }
  }
}

}  // namespace millrace::augment
