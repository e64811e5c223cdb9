// Checks that no pixel of a pixel unit's result depends on pixels beyond the declared reach.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "base/rng.h"
#include "tools/plugins/probe.h"

namespace millrace::tools {
namespace {

constexpr Size kSize{33, 29};

struct Place {
  int x, y;
};
/// Pixels that are changed, one at a time: in the middle, in corners and beside an edge.
constexpr Place kChanged[] = {{16, 14}, {0, 0}, {32, 28}, {1, 20}};

struct Pixels {
  int channels;
  std::vector<std::uint8_t> levels;

  std::uint8_t* at(Place place) {
    return levels.data() + static_cast<std::size_t>((place.y * kSize.width + place.x) * channels);
  }
  bool differs(Pixels& other, Place place) {
    return !std::equal(at(place), at(place) + channels, other.at(place));
  }
};

Pixels noise(int channels, std::uint64_t seed) {
  Pixels pixels{channels, std::vector<std::uint8_t>(
                              static_cast<std::size_t>(kSize.width * kSize.height * channels))};
  for (std::size_t i = 0; i < pixels.levels.size(); ++i)
    pixels.levels[i] = static_cast<std::uint8_t>(base::mix64(seed << 32 ^ i) >> 56);
  return pixels;
}

/// Applies the unit with the draws of `seed`. Returns whether it accepts the image.
bool apply(const plugins::Unit& unit, std::uint64_t seed, Pixels& pixels) {
  const millrace_pixel& functions = *unit.table().pixel;
  plugins::CallContext context;
  context.call.rng = base::stream({1, 0, seed}, base::op_id(unit.table().name));
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> scratch;
  if (functions.scratch != nullptr) {
    const std::size_t bytes = functions.scratch(unit.self(), kSize, pixels.channels);
    const std::size_t size = (bytes + 64) / 64 * 64;
    scratch.reset(std::aligned_alloc(64, size));
    if (scratch == nullptr) throw std::bad_alloc();
    // Fills it alike in every call: another step finds units that read what they have not written.
    std::memset(scratch.get(), 0x5A, size);
    context.call.scratch = scratch.get();
    context.call.scratch_size = bytes;
  }
  const millrace_image image{pixels.levels.data(), kSize.width, kSize.height, pixels.channels,
                             std::ptrdiff_t{kSize.width} * pixels.channels};
  return watched_call(context, [&] {
           return functions.apply(unit.self(), &image, &context.call);
         }).status == MILLRACE_OK;
}

/// Throws Defect if a pixel farther than `reach` from `changed` differs. Returns the distance of
/// the farthest one that does, or -1.
int farthest_difference(Pixels& before, Pixels& after, Place changed, int reach,
                        const std::string& declared, const std::string& where) {
  int farthest = -1;
  for (int y = 0; y < kSize.height; ++y)
    for (int x = 0; x < kSize.width; ++x) {
      if (!before.differs(after, {x, y})) continue;
      const int distance = std::max(std::abs(x - changed.x), std::abs(y - changed.y));
      if (distance > reach)
        throw Defect(fmt::format(
            "it declares {}, but pixel ({}, {}) of its result depends on pixel ({}, {}), which is "
            "{} away ({}): correct kReach",
            declared, x, y, changed.x, changed.y, distance, where));
      farthest = std::max(farthest, distance);
    }
  return farthest;
}

}  // namespace

std::string try_reach(const millrace_unit& unit) {
  const millrace_pixel& functions = *unit.pixel;
  if (functions.levels != nullptr) return "a table of levels: pointwise";
  if (functions.reach == MILLRACE_GLOBAL) return "declared global: any pixel may depend on any";
  if (functions.reach != MILLRACE_POINTWISE && functions.reach != MILLRACE_HALO)
    throw Defect(fmt::format("its reach is {}, which the interface doesn't have", functions.reach));
  const bool has_halo = functions.reach == MILLRACE_HALO;
  if (has_halo && functions.halo < 1)
    throw Defect(fmt::format("it declares a halo of {} pixels", functions.halo));
  const int reach = has_halo ? functions.halo : 0;
  const std::string declared =
      has_halo ? fmt::format("a halo of {} pixel{}", reach, reach == 1 ? "" : "s") : "pointwise";
  int farthest = -1;
  for (const Variant& variant : variants_of(unit)) {
    std::unique_ptr<plugins::Unit> instance;
    try {
      instance = std::make_unique<plugins::Unit>(unit, variant.params);
    } catch (const UsageError&) {
      continue;  // the step "parameters" reports it
    }
    for (const int channels : {1, 3})
      for (std::uint64_t seed = 0; seed < 6; ++seed) {
        Pixels before = noise(channels, seed);
        if (!apply(*instance, seed, before)) continue;
        Pixels again = noise(channels, seed);
        if (!apply(*instance, seed, again) || again.levels != before.levels)
          return "not checked: its results differ from call to call";
        for (const Place changed : kChanged) {
          Pixels after = noise(channels, seed);
          for (int c = 0; c < channels; ++c) after.at(changed)[c] ^= 0xFF;
          if (!apply(*instance, seed, after)) continue;
          farthest = std::max(
              farthest, farthest_difference(before, after, changed, reach, declared, variant.text));
        }
      }
  }
  return farthest < 0 ? fmt::format("declared {}; no call depended on a pixel", declared)
                      : fmt::format("declared {}; farthest dependence {}", declared, farthest);
}

}  // namespace millrace::tools
