// Probes augmentations: their reach, and geometric, pixel, filter and choice units on images of
// odd sizes.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "base/rng.h"
#include "probe/probe.h"

namespace millrace::probe {

// Checks that no pixel of a pixel unit's result depends on pixels beyond the declared reach.

namespace {

constexpr Size kSize{33, 29};

struct Position {
  int x, y;
};
/// Pixels that are changed, one at a time: in the middle, in corners and beside an edge.
constexpr Position kChanged[] = {{16, 14}, {0, 0}, {32, 28}, {1, 20}};

struct Pixels {
  int channels;
  std::vector<std::uint8_t> levels;

  std::uint8_t* at(Position place) {
    return levels.data() + static_cast<std::size_t>((place.y * kSize.width + place.x) * channels);
  }
  bool differs(Pixels& other, Position place) {
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
  // Alike in every call: another step finds units that read what they have not written.
  const Placement placement;
  Calling calling(unit, {kSize, pixels.channels, seed}, placement);
  if (functions.scratch != nullptr)
    calling.lend_scratch(functions.scratch(unit.self(), kSize, pixels.channels), placement);
  Guarded memory("the image", pixels.levels.size(), placement.near, placement.fill);
  std::copy(pixels.levels.begin(), pixels.levels.end(), memory.data());
  const millrace_image image{memory.data(), kSize.width, kSize.height, pixels.channels,
                             std::ptrdiff_t{kSize.width} * pixels.channels};
  const Outcome outcome = watched_call(
      calling.context, [&] { return functions.apply(unit.self(), &image, &calling.context.call); });
  memory.check();
  calling.check();
  std::copy_n(memory.data(), memory.size(), pixels.levels.begin());
  return outcome.status == MILLRACE_OK;
}

/// Throws Defect if a pixel farther than `reach` from `changed` differs. Returns the distance of
/// the farthest one that does, or -1.
int farthest_difference(Pixels& before, Pixels& after, Position changed, int reach,
                        const std::string& declared, const std::string& where) {
  int farthest = -1;
  for (int y = 0; y < kSize.height; ++y)
    for (int x = 0; x < kSize.width; ++x) {
      if (!before.differs(after, {x, y})) continue;
      const int distance = std::max(std::abs(x - changed.x), std::abs(y - changed.y));
      if (distance > reach)
        throw Defect(fmt::format(
            "it declares {}, but pixel ({}, {}) of its result depends on pixel ({}, {}), which is "
            "{} away ({}): correct the declared reach",
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
        for (const Position changed : kChanged) {
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

// Probes augmentations: geometric, pixel, filter, choice and batch units on images of odd sizes.

namespace {

constexpr Size kSizes[] = {{1, 1}, {3, 5}, {17, 13}, {224, 224}};
constexpr std::int64_t kOutputLimit = std::int64_t{1} << 24;  ///< most pixels of a filter's output

using Shared = std::shared_ptr<const plugins::Unit>;

/// Rows of pixels in guarded memory, generated from the seed.
class TestImage {
 public:
  TestImage(const char* what, Size size, int channels, const Placement& placement)
      : width_(static_cast<std::size_t>(size.width) * static_cast<std::size_t>(channels)),
        row_(width_ + static_cast<std::size_t>(placement.row_padding)),
        fill_(placement.fill),
        what_(what),
        memory_(what, row_ * (static_cast<std::size_t>(size.height) - 1) + width_, placement.near,
                placement.fill),
        image_{memory_.data(), size.width, size.height, channels,
               static_cast<std::ptrdiff_t>(row_)} {}

  void draw(std::uint64_t seed) {
    for (std::size_t y = 0; y < height(); ++y)
      for (std::size_t x = 0; x < width_; ++x)
        memory_.data()[y * row_ + x] = byte_of(seed, y * width_ + x);
  }
  void protect() { memory_.protect(); }
  const millrace_image& image() const { return image_; }
  void check() const {
    memory_.check();
    for (std::size_t y = 0; y + 1 < height(); ++y)
      for (std::size_t x = width_; x < row_; ++x)
        if (memory_.data()[y * row_ + x] != fill_)
          throw Defect(fmt::format("it writes past a row of {}: {} bytes behind the end of row {}",
                                   what_, x - width_ + 1, y));
  }
  std::vector<std::uint8_t> pixels() const {
    std::vector<std::uint8_t> all;
    for (std::size_t y = 0; y < height(); ++y) {
      const std::uint8_t* row = memory_.data() + y * row_;
      all.insert(all.end(), row, row + width_);
    }
    return all;
  }

 private:
  std::size_t height() const { return static_cast<std::size_t>(image_.height); }

  std::size_t width_, row_;  ///< in bytes
  std::uint8_t fill_;
  const char* what_;
  Guarded memory_;
  millrace_image image_;
};

template <class Functions>
Size output_size(const plugins::Unit& unit, const Functions& functions, const Input& input,
                 Calling& calling, Outcome& outcome) {
  Size output = input.size;
  if (functions.output == nullptr) return output;
  outcome = watched_call(calling.context, [&] {
    return functions.output(unit.self(), input.size, &output, &calling.context.call);
  });
  if (outcome.status == MILLRACE_OK && (output.width < 1 || output.height < 1))
    throw Defect(fmt::format("output() makes {}x{} of {}x{}", output.width, output.height,
                             input.size.width, input.size.height));
  return output;
}

void check_warp(const millrace_warp& warp, Size input, Size output) {
  const double* m = warp.map;
  if (!std::all_of(m, m + 9, [](double v) { return std::isfinite(v); }))
    throw Defect("warp(): a number of the map is not finite, or was not set");
  if (!(warp.output == output))
    throw Defect(fmt::format("warp() makes {}x{}, output() said {}x{}", warp.output.width,
                             warp.output.height, output.width, output.height));
  const millrace_rect& w = warp.window;
  if (w.x0 < 0 || w.y0 < 0 || w.x1 > input.width || w.y1 > input.height || w.x0 >= w.x1 ||
      w.y0 >= w.y1)
    throw Defect(fmt::format("warp(): the window [{}, {}) x [{}, {}) is not part of {}x{}", w.x0,
                             w.x1, w.y0, w.y1, input.width, input.height));
  if (warp.interpolation < MILLRACE_INDEX || warp.interpolation > MILLRACE_BILINEAR ||
      warp.border < MILLRACE_CONSTANT || warp.border > MILLRACE_SYMMETRIC ||
      (warp.antialias != 0 && warp.antialias != 1))
    throw Defect(fmt::format("warp(): interpolation {}, border {}, antialias {}",
                             warp.interpolation, warp.border, warp.antialias));
  if (warp.interpolation != MILLRACE_INDEX) return;
  const auto unit = [](double a, double b) {
    return (std::abs(a) == 1 && b == 0) || (a == 0 && std::abs(b) == 1);
  };
  if (!unit(m[0], m[1]) || !unit(m[3], m[4]) || !unit(m[0], m[3]) || m[6] != 0 || m[7] != 0 ||
      m[8] != 1 || m[2] != std::floor(m[2]) || m[5] != std::floor(m[5]))
    throw Defect(
        "warp(): with interpolation INDEX the map must be a signed permutation with whole offsets");
}

Outcome run_geometric(const plugins::Unit& unit, const Input& input, const Placement& placement) {
  const millrace_geometric& functions = *unit.table().geometric;
  Calling calling(unit, input, placement);
  Outcome outcome;
  const Size output = output_size(unit, functions, input, calling, outcome);
  if (outcome.status != MILLRACE_OK) return outcome;
  Guarded memory("the warp", sizeof(millrace_warp), Guarded::Near::behind, placement.fill,
                 alignof(millrace_warp));
  auto* warp = reinterpret_cast<millrace_warp*>(memory.data());
  outcome = watched_call(calling.context, [&] {
    return functions.warp(unit.self(), input.size, warp, &calling.context.call);
  });
  memory.check();
  if (outcome.status != MILLRACE_OK) return outcome;
  check_warp(*warp, input.size, output);
  outcome.bytes.assign(memory.data(), memory.data() + memory.size());
  return outcome;
}

/// Calls apply_floats() with pixels between 0 and 1. Returns what it made.
Outcome run_floats(const plugins::Unit& unit, const Input& input, const Placement& placement) {
  Calling calling(unit, input, placement);
  const std::size_t width =
      static_cast<std::size_t>(input.size.width) * static_cast<std::size_t>(input.channels);
  const auto height = static_cast<std::size_t>(input.size.height);
  const std::size_t row = width + static_cast<std::size_t>(placement.row_padding);
  Guarded memory("the image of floats", (row * (height - 1) + width) * sizeof(float),
                 placement.near, placement.fill, alignof(float));
  auto* const values = reinterpret_cast<float*>(memory.data());
  for (std::size_t y = 0; y < height; ++y)
    for (std::size_t x = 0; x < width; ++x)
      values[y * row + x] = static_cast<float>(byte_of(input.seed, y * width + x)) / 255;
  const millrace_float_image image{values, input.size.width, input.size.height, input.channels,
                                   static_cast<std::ptrdiff_t>(row)};
  Outcome outcome = watched_call(calling.context, [&] {
    return plugins::floats_of(*unit.table().pixel)(unit.self(), &image, &calling.context.call);
  });
  memory.check();
  for (std::size_t y = 0; y < height; ++y) {
    const std::uint8_t* begin = memory.data() + y * row * sizeof(float);
    const std::uint8_t* end = begin + width * sizeof(float);
    outcome.bytes.insert(outcome.bytes.end(), begin, end);
    if (y + 1 < height && std::any_of(end, begin + row * sizeof(float),
                                      [&](auto byte) { return byte != placement.fill; }))
      throw Defect(fmt::format("it writes past row {} of the image of floats", y));
  }
  return outcome;
}

Outcome run_levels_or_bytes(const plugins::Unit& unit, const Input& input,
                            const Placement& placement) {
  const millrace_pixel& functions = *unit.table().pixel;
  Calling calling(unit, input, placement);
  if (functions.levels != nullptr) {
    const auto channels = static_cast<std::size_t>(input.channels);
    Guarded memory("the table of levels", channels * 256, placement.near, 0);
    for (std::size_t i = 0; i < memory.size(); ++i) memory.data()[i] = static_cast<std::uint8_t>(i);
    Outcome outcome = watched_call(calling.context, [&] {
      return functions.levels(unit.self(), reinterpret_cast<std::uint8_t(*)[256]>(memory.data()),
                              input.channels, &calling.context.call);
    });
    memory.check();
    outcome.bytes.assign(memory.data(), memory.data() + memory.size());
    return outcome;
  }
  if (functions.scratch != nullptr)
    calling.lend_scratch(functions.scratch(unit.self(), input.size, input.channels), placement);
  TestImage image("the image", input.size, input.channels, placement);
  image.draw(input.seed);
  const millrace_image given = image.image();
  Outcome outcome = watched_call(
      calling.context, [&] { return functions.apply(unit.self(), &given, &calling.context.call); });
  image.check();
  calling.check();
  if (outcome.status == MILLRACE_OK) outcome.bytes = image.pixels();
  return outcome;
}

Outcome run_pixel(const plugins::Unit& unit, const Input& input, const Placement& placement) {
  Outcome outcome = run_levels_or_bytes(unit, input, placement);
  if (outcome.status != MILLRACE_OK || plugins::floats_of(*unit.table().pixel) == nullptr)
    return outcome;
  Outcome floats = run_floats(unit, input, placement);
  floats.bytes.insert(floats.bytes.end(), outcome.bytes.begin(), outcome.bytes.end());
  return floats;
}

Outcome run_filter(const plugins::Unit& unit, const Input& input, const Placement& placement) {
  const millrace_filter& functions = *unit.table().filter;
  Calling calling(unit, input, placement);
  Outcome outcome;
  const Size output = output_size(unit, functions, input, calling, outcome);
  if (outcome.status != MILLRACE_OK || std::int64_t{output.width} * output.height > kOutputLimit)
    return outcome;
  if (functions.scratch != nullptr)
    calling.lend_scratch(functions.scratch(unit.self(), input.size, input.channels), placement);
  TestImage source("the source", input.size, input.channels, placement);
  source.draw(input.seed);
  source.protect();
  TestImage destination("the destination", output, input.channels, placement);
  const millrace_image from = source.image();
  const millrace_image to = destination.image();
  outcome = watched_call(calling.context, [&] {
    return functions.apply(unit.self(), &from, &to, &calling.context.call);
  });
  destination.check();
  calling.check();
  if (outcome.status == MILLRACE_OK) outcome.bytes = destination.pixels();
  return outcome;
}

Outcome run_choice(const plugins::Unit& unit, const Input& input, const Placement& placement) {
  Calling calling(unit, input, placement);
  Guarded memory("the list of places", MILLRACE_MOST_CHOSEN * sizeof(std::uint32_t), placement.near,
                 placement.fill, alignof(std::uint32_t));
  auto* places = reinterpret_cast<std::uint32_t*>(memory.data());
  std::size_t count = 0;
  Outcome outcome = watched_call(calling.context, [&] {
    return unit.table().choice->choose(unit.self(), places, &count, &calling.context.call);
  });
  memory.check();
  if (outcome.status != MILLRACE_OK) return outcome;
  if (count > MILLRACE_MOST_CHOSEN)
    throw Defect(
        fmt::format("it chooses {} children, {} are possible", count, MILLRACE_MOST_CHOSEN));
  for (std::size_t i = 0; i < count; ++i)
    if (places[i] >= unit.children().size())
      throw Defect(fmt::format("it chooses child {} of {}", places[i], unit.children().size()));
  outcome.bytes.assign(memory.data(), memory.data() + count * sizeof(std::uint32_t));
  return outcome;
}

Outcome run(const plugins::Unit& unit, const Input& input, const Placement& placement) {
  const millrace_unit& table = unit.table();
  return table.geometric != nullptr ? run_geometric(unit, input, placement)
         : table.pixel != nullptr   ? run_pixel(unit, input, placement)
         : table.filter != nullptr  ? run_filter(unit, input, placement)
         : table.choice != nullptr  ? run_choice(unit, input, placement)
                                    : run_batch(unit, input, placement);
}

/// Returns null, with the reason in `refused`, if the parameters contradict each other.
Shared make(const millrace_unit& unit, const Params& params, std::string& refused) {
  Shared made;
  plugins::CallContext context;
  watched_call(context, [&] {
    try {
      made = std::make_shared<const plugins::Unit>(unit, params);
    } catch (const UsageError& error) {
      refused = error.what();
    } catch (const Error& error) {
      throw Defect(error.what());
    }
    return MILLRACE_OK;
  });
  return made;
}

std::string try_parameters(const millrace_unit& unit) {
  const std::vector<Variant> variants = variants_of(unit);
  std::string some;
  std::size_t made = 0;
  for (const Variant& variant : variants) {
    std::string refused;
    if (make(unit, variant.params, refused) != nullptr) {
      ++made;
      continue;
    }
    if (&variant == variants.data())
      throw Defect(fmt::format("create() rejects the parameters' own defaults: {}", refused));
    some += fmt::format("; {} is rejected: {}", variant.text, refused);
  }
  return fmt::format("made with {} of {} values{}", made, variants.size(), some);
}

std::string try_images(const millrace_unit& unit, bool may_reject) {
  std::size_t calls = 0;
  std::size_t refusals = 0;
  std::string first, reason;
  const auto call = [&](const plugins::Unit& instance, const Input& input,
                        const Placement& placement, const std::string& where) {
    try {
      const Outcome outcome = run(instance, input, placement);
      ++calls;
      if (outcome.status == MILLRACE_OK) return;
      ++refusals;
      reason = outcome.error;
      if (first.empty()) first = fmt::format("{} ({}, {})", reason, input.text(), where);
    } catch (const Defect& defect) {
      throw Defect(fmt::format("{} ({}, {})", defect.what(), input.text(), where));
    }
  };
  for (const Variant& variant : variants_of(unit)) {
    std::string refused;
    const Shared instance = make(unit, variant.params, refused);
    if (instance == nullptr) continue;
    const bool defaults = variant.text == "defaults";
    for (const Size size : kSizes) {
      if (!defaults && size.width > 17) continue;
      for (const int channels : {1, 3})
        for (std::uint64_t seed = 0; seed < 8; ++seed) {
          const Input input{size, channels, seed};
          call(*instance, input, {Guarded::Near::behind, 0, 0x00}, variant.text);
          if (!defaults || seed > 1) continue;
          for (const int padding : {1, 5, 64})
            call(*instance, input, {Guarded::Near::behind, padding, 0xC3}, variant.text);
          call(*instance, input, {Guarded::Near::before, 3, 0xFF}, variant.text);
        }
    }
    if (defaults && refusals == calls)
      throw Defect(fmt::format("it rejects every image, up to 224x224: {}", reason));
  }
  std::string text = fmt::format("{} calls, 1x1 to 224x224, gray and RGB", calls);
  if (refusals > 0 && !may_reject)
    throw Defect(fmt::format("it rejects {} of {} images, the first: {}", refusals, calls, first));
  if (refusals > 0) text += fmt::format("; {} rejected, the last: {}", refusals, reason);
  return text;
}

}  // namespace

void add_augmentation_steps(std::vector<Step>& steps, const millrace_unit& unit,
                            const Options& options,
                            const std::function<void(const CheckCost&)>& cost) {
  steps.push_back({unit.name, "parameters", [&unit] { return try_parameters(unit); }});
  steps.push_back({unit.name, "images", [&unit, may_reject = options.may_reject] {
                     return try_images(unit, may_reject);
                   }});
  if (unit.pixel != nullptr)
    steps.push_back({unit.name, "reach", [&unit] { return try_reach(unit); }});
  if (unit.batch != nullptr)
    steps.push_back({unit.name, "group", [&unit] { return try_group(unit); }});
  const auto instance = std::make_shared<Shared>();  // created by the first step that needs it
  const auto open = [&unit, instance]() -> Session {
    std::string refused;
    if (*instance == nullptr) *instance = make(unit, variants_of(unit).front().params, refused);
    if (*instance == nullptr) throw Defect(refused);
    return [shared = *instance](const Input& input, const Placement& placement) {
      return run(*shared, input, placement);
    };
  };
  const auto make_and_drop = [&unit] {
    const Params defaults(plugins::to_declaration(unit).params);
    const plugins::Unit once(unit, defaults);
  };
  Subject subject{unit, open, make_and_drop, {}, {}};
  for (const Size size : {Size{17, 13}, Size{1, 1}, Size{64, 48}})
    for (std::uint64_t seed = 0; seed < 8; ++seed)
      subject.inputs.push_back({size, seed % 3 == 0 ? 1 : 3, seed});
  subject.costs = {{{224, 224}, 3, 4}, {{224, 224}, 1, 4}, {{32, 32}, 3, 4}, {{640, 480}, 3, 4}};
  add_common_steps(steps, std::make_shared<Subject>(std::move(subject)), options, cost);
}

}  // namespace millrace::probe
