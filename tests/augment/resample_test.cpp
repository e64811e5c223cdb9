// Compares the kernels with the definition of a pass, computed pixel by pixel in double precision.
// Compares the antialiased reduction also with Pillow's and torchvision's
// (tests/golden/make_resize.py).
#include "augment/plan/resample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/simd.h"
#include "tests/augment/random_pass.h"
#include "tests/pipeline/allocations.h"

namespace millrace::augment {
namespace {

std::vector<std::uint8_t> levels_of(const Pass& pass) {
  static ResampleScratch scratch;
  std::vector<std::uint8_t> out(static_cast<std::size_t>(pass.output.width * pass.output.height) *
                                static_cast<std::size_t>(pass.source.channels));
  resample(pass, out.data(), scratch);
  return out;
}

// ---- the definition

struct Position {
  double x, y;
};

Position mapped(const std::array<double, 9>& m, double x, double y) {
  const double w = m[6] * x + m[7] * y + m[8];
  return {(m[0] * x + m[1] * y + m[2]) / w, (m[3] * x + m[4] * y + m[5]) / w};
}

bool holds(const Rect& r, double x, double y) {
  return x >= r.x0 && x < r.x1 && y >= r.y0 && y < r.y1;
}

/// Returns the distance of a position from where floor() or a bound would decide otherwise.
double doubt(double position) { return std::abs(position - std::round(position)); }

/// Returns the weighted taps of one axis of Filter::reduce.
std::vector<std::pair<int, double>> triangle(double scale, double centre, int low, int high) {
  const double support = std::max(scale, 1.0);
  std::vector<std::pair<int, double>> taps;
  double total = 0;
  for (int i = low; i < high; ++i) {
    const double weight = 1 - std::abs(i + 0.5 - centre) / support;
    if (weight <= 0) continue;
    taps.emplace_back(i, weight);
    total += weight;
  }
  if (taps.empty()) return {{std::clamp(static_cast<int>(std::floor(centre)), low, high - 1), 1.0}};
  for (auto& tap : taps) tap.second /= total;
  return taps;
}

struct Expected {
  double level;
  bool certain = true;  ///< false if rounding of the position may decide otherwise
};

double level_at(const Pass& pass, int i, int j, int c) {
  if (pass.border == Border::clamp) {
    const Rect& r = pass.inner[0].rect;
    i = std::clamp(i, r.x0, r.x1 - 1);
    j = std::clamp(j, r.y0, r.y1 - 1);
  }
  for (const Bound& bound : pass.inner)
    if (!holds(bound.rect, i, j)) return bound.fill[static_cast<std::size_t>(c)];
  return *pass.source.at(i, j, c);
}

/// Returns the pixel of a position; positions too far away to show different pixels share one.
int index(double position) { return static_cast<int>(std::clamp(std::floor(position), -1e6, 1e6)); }

Expected expected(const Pass& pass, int x, int y, int c) {
  if (pass.filter == Filter::none) return {level_at(pass, x, y, c)};
  for (const Bound& bound : pass.outer)
    if (!holds(bound.rect, x, y)) return {double(bound.fill[static_cast<std::size_t>(c)])};
  const IndexMove& m = pass.move;
  const double a = m.xx * x + m.xy * y + m.x0 + 0.5;
  const double b = m.yx * x + m.yy * y + m.y0 + 0.5;
  Expected result{0};
  for (const MappedBound& mapped_bound : pass.middle) {
    const Position at = mapped(mapped_bound.map, a, b);
    if (std::min(doubt(at.x), doubt(at.y)) < 1e-3) result.certain = false;
    if (holds(mapped_bound.bound.rect, at.x, at.y)) continue;
    result.level = mapped_bound.bound.fill[static_cast<std::size_t>(c)];
    return result;
  }
  const Position at = mapped(pass.map, a, b);
  if (pass.filter == Filter::nearest) {
    if (std::min(doubt(at.x), doubt(at.y)) < 1e-3) result.certain = false;
    result.level = level_at(pass, index(at.x), index(at.y), c);
  } else if (pass.filter == Filter::bilinear) {
    const int i = index(at.x - 0.5), j = index(at.y - 0.5);
    const double u = std::clamp(at.x - 0.5 - i, 0.0, 1.0);
    const double v = std::clamp(at.y - 0.5 - j, 0.0, 1.0);
    result.level =
        (level_at(pass, i, j, c) * (1 - u) + level_at(pass, i + 1, j, c) * u) * (1 - v) +
        (level_at(pass, i, j + 1, c) * (1 - u) + level_at(pass, i + 1, j + 1, c) * u) * v;
  } else {
    const Rect& r = pass.inner[0].rect;
    for (const auto& [j, wy] : triangle(pass.map[4], at.y, r.y0, r.y1))
      for (const auto& [i, wx] : triangle(pass.map[0], at.x, r.x0, r.x1))
        result.level += wy * wx * *pass.source.at(i, j, c);
  }
  return result;
}

struct Errors {
  double mean, worst;
};

/// Returns the distance of random passes' levels from the definition.
Errors errors(Filter filter, int passes) {
  double sum = 0, worst = 0;
  std::size_t pixels = 0;
  for (int number = 0; number < passes; ++number) {
    const RandomPass random = random_pass(static_cast<std::uint64_t>(number), filter);
    const Pass& pass = random.pass;
    const auto got = levels_of(pass);
    std::size_t i = 0;
    for (int y = 0; y < pass.output.height; ++y)
      for (int x = 0; x < pass.output.width; ++x)
        for (int c = 0; c < pass.source.channels; ++c, ++i) {
          const Expected should = expected(pass, x, y, c);
          if (!should.certain) continue;
          const double error = std::abs(got[i] - should.level);
          sum += error;
          ++pixels;
          if (error > worst) worst = error;
        }
  }
  return {sum / static_cast<double>(pixels), worst};
}

TEST(Resample, MovesAreTheirDefinition) { EXPECT_EQ(errors(Filter::none, 300).worst, 0); }

TEST(Resample, NearestIsItsDefinition) { EXPECT_EQ(errors(Filter::nearest, 300).worst, 0); }

TEST(Resample, BilinearIsItsDefinition) {
  // 0.5 comes from rounding; the rest from positions and weights in fixed point.
  EXPECT_LT(errors(Filter::bilinear, 300).worst, 0.75);
}

TEST(Resample, ReductionIsItsDefinition) {
  const auto [mean, worst] = errors(Filter::reduce, 300);
  EXPECT_LT(mean, 0.25);  // rounding alone gives as much
  EXPECT_LT(worst, 0.6);
}

// ---- Pillow and torchvision

const nlohmann::json& golden() {
  static const nlohmann::json all =
      nlohmann::json::parse(std::ifstream(MILLRACE_GOLDEN "/resize.json"));
  return all;
}

std::vector<std::uint8_t> bytes(const std::string& hex) {
  std::vector<std::uint8_t> out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<std::uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return out;
}

/// Equals picture() of make_resize.py.
std::vector<std::uint8_t> picture(std::size_t bytes) {
  std::vector<std::uint8_t> pixels(bytes + kTailSlack);
  for (std::size_t i = 0; i < bytes; ++i) {
    auto h = static_cast<std::uint32_t>(i * 0x9E3779B1u);
    h = (h ^ (h >> 15)) * 0x85EBCA77u;
    pixels[i] = static_cast<std::uint8_t>(h >> 13);
  }
  return pixels;
}

struct Comparison {
  int worst = 0;
  std::size_t differing = 0, all = 0;
};

/// With `clip`, taps stay inside the box (torchvision crops first), not only inside the image.
void compare(const nlohmann::json& item, const std::string& theirs, bool clip, Comparison& total) {
  const Size size{item["width"], item["height"]};
  const int channels = item["channels"];
  const auto pixels = picture(static_cast<std::size_t>(size.width * size.height) *
                              static_cast<std::size_t>(channels));
  const auto box = item["box"].get<std::array<double, 4>>();
  Pass pass;
  pass.source = interleaved(pixels.data(), size, channels);
  pass.output = {item["columns"], item["rows"]};
  pass.filter = Filter::reduce;
  pass.map[0] = (box[2] - box[0]) / pass.output.width;
  pass.map[2] = box[0];
  pass.map[4] = (box[3] - box[1]) / pass.output.height;
  pass.map[5] = box[1];
  const Rect whole{0, 0, size.width, size.height};
  const Rect inside{int(box[0]), int(box[1]), int(box[2]), int(box[3])};
  pass.inner.push_back({clip ? inside : whole, {}});
  const auto got = levels_of(pass), expected = bytes(item[theirs]);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const int distance = std::abs(got[i] - expected[i]);
    total.worst = std::max(total.worst, distance);
    total.differing += distance != 0;
  }
  total.all += got.size();
}

TEST(Golden, ReductionIsPillowsWithinOneLevel) {
  Comparison total;
  for (const auto& item : golden()) compare(item, "pil", false, total);
  EXPECT_LE(total.worst, 1);
  EXPECT_LT(total.differing, total.all / 4) << "of " << total.all;  // Pillow rounds between axes
}

TEST(Golden, ReductionIsTorchvisionsWithinOneLevel) {
  Comparison total;
  for (const auto& item : golden())
    if (item.contains("torchvision")) compare(item, "torchvision", true, total);
  EXPECT_GT(total.all, 1000u);
  EXPECT_LE(total.worst, 1);
  EXPECT_LT(total.differing, total.all / 4) << "of " << total.all;
}

// ---- exactness of what is folded

/// Compares reductions of a mirrored or turned view with those of its copy, and a mirrored, turned
/// or cut output with the output's copy mirrored, turned or cut.
TEST(Resample, IndexMovesAroundAReductionChangeNoBit) {
  ResampleScratch scratch;
  for (std::uint64_t number = 0; number < 400; ++number) {
    RandomPass random = random_pass(number, Filter::reduce);
    Pass& pass = random.pass;
    pass.outer.clear();
    pass.middle.clear();
    const int channels = pass.source.channels;
    // Copies the source.
    const Rect r = pass.inner[0].rect;
    const Size size{r.x1 - r.x0, r.y1 - r.y0};
    Pass copy;
    copy.source = pass.source;
    copy.source.data = pass.source.at(r.x0, r.y0);
    copy.output = size;
    std::vector<std::uint8_t> copied = levels_of(copy);
    copied.resize(copied.size() + kTailSlack);
    Pass same = pass;
    same.source = interleaved(copied.data(), size, channels);
    same.source.data -= r.x0 * same.source.pixel + r.y0 * same.source.row;
    ASSERT_EQ(levels_of(pass), levels_of(same)) << number;
    // Copies the output, from a frame that holds all that the move shows.
    const IndexMove move = pass.move;
    int x0 = 0, y0 = 0, x1 = 1, y1 = 1;
    for (const int x : {0, pass.output.width - 1})
      for (const int y : {0, pass.output.height - 1}) {
        const int a = move.xx * x + move.xy * y + move.x0, b = move.yx * x + move.yy * y + move.y0;
        x0 = std::min(x0, a);
        y0 = std::min(y0, b);
        x1 = std::max(x1, a + 1);
        y1 = std::max(y1, b + 1);
      }
    Pass straight = pass;
    straight.move = {};
    straight.move.x0 = x0;
    straight.move.y0 = y0;
    straight.output = {x1 - x0, y1 - y0};
    const auto all = levels_of(straight), moved = levels_of(pass);
    std::size_t i = 0;
    for (int y = 0; y < pass.output.height; ++y)
      for (int x = 0; x < pass.output.width; ++x)
        for (int c = 0; c < channels; ++c, ++i) {
          const int a = move.xx * x + move.xy * y + move.x0 - x0;
          const int b = move.yx * x + move.yy * y + move.y0 - y0;
          ASSERT_EQ(moved[i], all[static_cast<std::size_t>((b * (x1 - x0) + a) * channels + c)])
              << number;
        }
  }
}

TEST(Resample, ScratchThatHasGrownIsEnough) {
  if (!pipeline::counts_allocations()) GTEST_SKIP() << "sanitizers bring their own allocator";
  std::vector<RandomPass> passes;
  for (const Filter filter : {Filter::none, Filter::nearest, Filter::bilinear, Filter::reduce})
    for (std::uint64_t number = 0; number < 200; ++number)
      passes.push_back(random_pass(number, filter));
  const Store gray(DType::f32, Layout::chw, 1, {0.1}, {0.3});
  const Store rgb(DType::f32, Layout::chw, 3, {0.1}, {0.3});
  std::vector<std::byte> out(200 * 50 * 3 * 4);
  const base::Simd before = base::simd_level();
  for (const base::Simd level : {base::Simd::scalar, base::Simd::avx2, base::Simd::avx512}) {
    if (level > base::simd_supported()) continue;
    base::set_simd_level(level);
    ResampleScratch scratch;
    const auto run = [&] {
      for (const RandomPass& random : passes)
        resample(random.pass, random.pass.source.channels == 3 ? rgb : gray, out.data(), scratch);
      return std::array{scratch.tile.data(),    scratch.positions.data(), scratch.taps.data(),
                        scratch.windows.data(), scratch.rows.data(),      scratch.packed.data(),
                        scratch.turned.data()};
    };
    const auto buffers = run();
    const std::uint64_t allocated = pipeline::allocations();
    EXPECT_EQ(run(), buffers) << base::name_of(level);
    EXPECT_EQ(pipeline::allocations(), allocated) << base::name_of(level);
  }
  base::set_simd_level(before);
}

}  // namespace
}  // namespace millrace::augment
