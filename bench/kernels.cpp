// Times one pass and its store, as a sample goes through them, at every SIMD level, and OpenCV for
// the same work. Compares results before timing: the levels with each other byte for byte, OpenCV's
// within the tolerance of its coarser positions and its other filter.
//
//   taskset -c 1 build/kernel_bench --benchmark_repetitions=5 --benchmark_report_aggregates_only
//   python3 bench/kernel_table.py     ratios as a table, OpenCV limited to each level
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>
#include <string>
#include <vector>

#include "augment/ops/geometry.h"
#include "augment/plan/resample.h"
#include "base/rng.h"
#include "base/simd.h"
#include "millrace/buffer.h"

namespace {

using namespace millrace;

/// Images of one size, enough to exceed the first-level cache but not the second or third, as a
/// reader or decoder leaves them.
struct Images {
  Size size;
  int channels;
  std::size_t count;
  std::vector<std::uint8_t> pixels;

  Images(Size s, int c, std::size_t n)
      : size(s), channels(c), count(n), pixels(n * bytes() + kTailSlack) {
    // Smooth with some noise, so that other libraries' filters can be compared.
    Draw draw(base::stream({1, 0, 0}, base::op_id("bench")));
    for (std::size_t i = 0; i < n * bytes(); ++i) {
      const auto p = static_cast<int>(i % bytes()) / channels;
      const double x = p % size.width, y = p / size.width;
      const double level = 127 + 90 * std::sin(x * 0.05) * std::cos(y * 0.04 + double(i % 3));
      pixels[i] = static_cast<std::uint8_t>(level + draw.uniform(-8, 8));
    }
  }
  std::size_t bytes() const {
    return static_cast<std::size_t>(size.width * size.height * channels);
  }
  const std::uint8_t* at(std::size_t i) const { return &pixels[i % count * bytes()]; }
};

/// Work to time: processes image number `i` into `out`.
struct Work {
  std::string name;
  DType dtype;
  std::size_t out_bytes;
  std::function<void(std::size_t i, std::byte* out)> run;
};

/// Runs a pass for image `i` through a store.
Work ours(const std::string& name, DType dtype, Layout layout, Size size, int channels,
          const std::function<augment::Pass(std::size_t)>& pass) {
  const std::vector<double> mean =
      channels == 1 ? std::vector{0.1307} : std::vector{0.485, 0.456, 0.406};
  const std::vector<double> std =
      channels == 1 ? std::vector{0.3081} : std::vector{0.229, 0.224, 0.225};
  const augment::Store store(dtype, layout, channels, mean, std);
  return {name, dtype,
          static_cast<std::size_t>(size.width * size.height * channels) * size_of(dtype),
          [store, pass](std::size_t i, std::byte* out) {
            static augment::ResampleScratch scratch;
            augment::resample(pass(i), store, out, scratch);
          }};
}

augment::Pass pass_of(const ImageView& source, Size output, augment::Filter filter) {
  augment::Pass pass;
  pass.source = source;
  pass.output = output;
  pass.filter = filter;
  pass.inner.push_back({{0, 0, source.width, source.height}, {}});
  return pass;
}

/// 512 rotations about the centre by up to `degrees`, with a little scale and shift. Drawn once, so
/// that only the pass is timed.
class Turns {
 public:
  Turns(Size size, double degrees) {
    for (std::uint64_t i = 0; i < 512; ++i) {
      Draw draw(base::stream({1, 0, i}, base::op_id("turn")));
      const augment::AffineParameters p{draw.uniform(-degrees, degrees),
                                        std::floor(draw.uniform(-2, 3)),
                                        std::floor(draw.uniform(-2, 3)),
                                        draw.uniform(0.8, 1.2),
                                        0,
                                        0};
      maps_.push_back(augment::inverse_affine(p, size.width * 0.5, size.height * 0.5));
    }
  }
  const std::array<double, 6>& operator[](std::size_t i) const { return maps_[i % 512]; }

 private:
  std::vector<std::array<double, 6>> maps_;
};

augment::Pass turned(const Images& images, const Turns& turns, std::size_t i,
                     augment::Filter filter) {
  augment::Pass pass =
      pass_of(interleaved(images.at(i), images.size, images.channels), images.size, filter);
  const auto& m = turns[i];
  pass.map = {m[0], m[1], m[2], m[3], m[4], m[5], 0, 0, 1};
  return pass;
}

// ---- the work -----------------------------------------------------------------------------------

const Images kDigits({28, 28}, 1, 512);
const Images kThumbs({32, 32}, 3, 512);
const Images kPhotos({380, 330}, 3, 8);
const Images kLargePhotos({3000, 2000}, 3, 1);
const Images kViews({224, 224}, 3, 8);
const Turns kDigitTurns({28, 28}, 15), kViewTurns({224, 224}, 30), kSlightTurns({224, 224}, 5);

augment::Pass digit(std::size_t i, augment::Filter filter) {
  return turned(kDigits, kDigitTurns, i, filter);
}

/// Returns a window of 32x32 of the image padded by 4; every second one is mirrored.
augment::Pass padded_crop(std::size_t i, bool planes) {
  const ImageView image =
      planes ? planar(kThumbs.at(i), {32, 32}, 3) : interleaved(kThumbs.at(i), {32, 32}, 3);
  augment::Pass pass = pass_of(image, {32, 32}, augment::Filter::none);
  const int dx = static_cast<int>(i * 7 % 9) - 4, dy = static_cast<int>(i * 5 / 9 % 9) - 4;
  Rect& r = pass.inner[0].rect;
  r = {-dx, -dy, 32 - dx, 32 - dy};
  pass.source.data += dx * pass.source.pixel + dy * pass.source.row;
  if (i % 2 == 0) return pass;
  pass.source.data += 31 * pass.source.pixel;
  pass.source.pixel = -pass.source.pixel;
  r = {32 - r.x1, r.y0, 32 - r.x0, r.y1};
  return pass;
}

augment::Pass photo(std::size_t i) {
  augment::Pass pass =
      pass_of(interleaved(kPhotos.at(i), kPhotos.size, 3), {224, 224}, augment::Filter::reduce);
  pass.map = {380 / 224.0, 0, 0, 0, 330 / 224.0, 0, 0, 0, 1};
  pass.move.xx = -1;
  pass.move.x0 = 223;
  return pass;
}

augment::Pass large_photo(std::size_t i) {
  augment::Pass pass = pass_of(interleaved(kLargePhotos.at(i), kLargePhotos.size, 3), {224, 224},
                               augment::Filter::reduce);
  pass.map = {3000 / 224.0, 0, 0, 0, 2000 / 224.0, 0, 0, 0, 1};
  return pass;
}

augment::Pass plain(std::size_t i) {
  augment::Pass pass;
  pass.source = interleaved(kViews.at(i), {224, 224}, 3);
  pass.output = {224, 224};
  return pass;
}

augment::Pass perspective(std::size_t i) {
  augment::Pass pass = turned(kViews, kSlightTurns, i, augment::Filter::bilinear);
  pass.map[6] = 0.0004;
  pass.map[7] = -0.0003;
  return pass;
}

std::vector<Work> our_work() {
  using enum DType;
  using enum Layout;
  const Size digits{28, 28}, thumbs{32, 32}, views{224, 224};
  return {
      ours("28x28_affine_nearest_f32", f32, chw, digits, 1,
           [](std::size_t i) { return digit(i, augment::Filter::nearest); }),
      ours("28x28_affine_bilinear_f32", f32, chw, digits, 1,
           [](std::size_t i) { return digit(i, augment::Filter::bilinear); }),
      ours("32x32x3_planar_crop_flip_f32", f32, chw, thumbs, 3,
           [](std::size_t i) { return padded_crop(i, true); }),
      ours("32x32x3_rgb_crop_flip_f32", f32, chw, thumbs, 3,
           [](std::size_t i) { return padded_crop(i, false); }),
      ours("380x330_reduce_224_flip_f32", f32, chw, views, 3, photo),
      ours("380x330_reduce_224_flip_u8_hwc", u8, hwc, views, 3, photo),
      ours("3000x2000_reduce_224_u8_hwc", u8, hwc, views, 3, large_photo),
      ours("224x224x3_store_f32", f32, chw, views, 3, plain),
      ours("224x224x3_store_f32_hwc", f32, hwc, views, 3, plain),
      ours("224x224x3_store_f16", f16, chw, views, 3, plain),
      ours("224x224x3_rotate_nearest_f32", f32, chw, views, 3,
           [](std::size_t i) { return turned(kViews, kViewTurns, i, augment::Filter::nearest); }),
      ours("224x224x3_rotate_bilinear_f32", f32, chw, views, 3,
           [](std::size_t i) { return turned(kViews, kViewTurns, i, augment::Filter::bilinear); }),
      ours("224x224x3_perspective_bilinear_f32", f32, chw, views, 3, perspective),
  };
}

// ---- OpenCV -------------------------------------------------------------------------------------

/// OpenCV puts pixel centres at whole numbers, we at halves.
cv::Matx23d opencv_map(const std::array<double, 6>& m) {
  return {m[0], m[1], m[2] + 0.5 * (m[0] + m[1]) - 0.5,
          m[3], m[4], m[5] + 0.5 * (m[3] + m[4]) - 0.5};
}

cv::Mat as_mat(const Images& images, std::size_t i) {
  return {images.size.height, images.size.width, images.channels == 3 ? CV_8UC3 : CV_8UC1,
          const_cast<std::uint8_t*>(images.at(i))};
}

/// Writes normalised planes, one channel after the other.
void store_planes(const cv::Mat& levels, std::byte* out) {
  static const double mean[] = {0.485, 0.456, 0.406}, std[] = {0.229, 0.224, 0.225};
  static cv::Mat planes[3];
  cv::split(levels, planes);
  for (int c = 0; c < 3; ++c) {
    cv::Mat to(levels.rows, levels.cols, CV_32FC1,
               reinterpret_cast<float*>(out) + c * levels.rows * levels.cols);
    planes[c].convertTo(to, CV_32F, 1 / 255.0 / std[c], -mean[c] / std[c]);
  }
}

Work opencv_reduce(const std::string& name, int interpolation) {
  return {name, DType::f32, 224 * 224 * 3 * 4, [interpolation](std::size_t i, std::byte* out) {
            static cv::Mat small, mirrored;
            cv::resize(as_mat(kPhotos, i), small, {224, 224}, 0, 0, interpolation);
            cv::flip(small, mirrored, 1);
            store_planes(mirrored, out);
          }};
}

std::vector<Work> opencv_work() {
  return {
      {"28x28_affine_nearest_f32/opencv", DType::f32, 28 * 28 * 4,
       [](std::size_t i, std::byte* out) {
         static cv::Mat warped;
         cv::warpAffine(as_mat(kDigits, i), warped, opencv_map(kDigitTurns[i]), {28, 28},
                        cv::INTER_NEAREST | cv::WARP_INVERSE_MAP);
         cv::Mat to(28, 28, CV_32FC1, out);
         warped.convertTo(to, CV_32F, 1 / 255.0 / 0.3081, -0.1307 / 0.3081);
       }},
      opencv_reduce("380x330_reduce_224_flip_f32/opencv_area", cv::INTER_AREA),
      opencv_reduce("380x330_reduce_224_flip_f32/opencv_linear", cv::INTER_LINEAR),
      {"380x330_reduce_224_flip_u8_hwc/opencv_linear", DType::u8, 224 * 224 * 3,
       [](std::size_t i, std::byte* out) {
         static cv::Mat small;
         cv::resize(as_mat(kPhotos, i), small, {224, 224}, 0, 0, cv::INTER_LINEAR);
         cv::Mat to(224, 224, CV_8UC3, out);
         cv::flip(small, to, 1);
       }},
      {"3000x2000_reduce_224_u8_hwc/opencv_area", DType::u8, 224 * 224 * 3,
       [](std::size_t i, std::byte* out) {
         cv::Mat to(224, 224, CV_8UC3, out);
         cv::resize(as_mat(kLargePhotos, i), to, {224, 224}, 0, 0, cv::INTER_AREA);
       }},
      {"224x224x3_store_f32/opencv", DType::f32, 224 * 224 * 3 * 4,
       [](std::size_t i, std::byte* out) { store_planes(as_mat(kViews, i), out); }},
      {"224x224x3_rotate_bilinear_f32/opencv", DType::f32, 224 * 224 * 3 * 4,
       [](std::size_t i, std::byte* out) {
         static cv::Mat warped;
         cv::warpAffine(as_mat(kViews, i), warped, opencv_map(kViewTurns[i]), {224, 224},
                        cv::INTER_LINEAR | cv::WARP_INVERSE_MAP);
         store_planes(warped, out);
       }},
  };
}

// ---- checks, then times -------------------------------------------------------------------------

[[noreturn]] void fail(const std::string& name, const std::string& what) {
  std::printf("%s: %s\n", name.c_str(), what.c_str());
  std::exit(1);
}

void check_levels(const Work& work) {
  std::vector<std::byte> scalar(work.out_bytes), other(work.out_bytes);
  for (std::size_t i = 0; i < 10; ++i) {
    base::set_simd_level(base::Simd::scalar);
    work.run(i, scalar.data());
    for (const base::Simd level : {base::Simd::avx2, base::Simd::avx512}) {
      if (level > base::simd_supported()) continue;
      base::set_simd_level(level);
      work.run(i, other.data());
      if (other != scalar)
        fail(work.name, "other bytes at level " + std::string(base::name_of(level)));
    }
  }
}

/// Returns the mean distance in levels of 255 (a level is 1 / 255 / std, where std is about 0.23).
template <class Element>
double distance(const Work& mine, const Work& theirs, double level) {
  std::vector<Element> a(mine.out_bytes / sizeof(Element)), b(a.size());
  double sum = 0;
  constexpr std::size_t kCompared = 8;
  for (std::size_t i = 0; i < kCompared; ++i) {
    mine.run(i, reinterpret_cast<std::byte*>(a.data()));
    theirs.run(i, reinterpret_cast<std::byte*>(b.data()));
    for (std::size_t k = 0; k < a.size(); ++k)
      sum += std::abs(static_cast<double>(a[k]) - static_cast<double>(b[k]));
  }
  return sum / static_cast<double>(a.size() * kCompared) / level;
}

void check_close(const Work& mine, const Work& theirs) {
  const double levels = mine.dtype == DType::f32 ? distance<float>(mine, theirs, 1 / 255.0 / 0.23)
                                                 : distance<std::uint8_t>(mine, theirs, 1);
  std::printf("%-45s mean distance %.3f levels\n", theirs.name.c_str(), levels);
  if (levels > 3) fail(theirs.name, "too far: the two do not do the same work");
}

void register_timing(const std::string& name, const Work& work, base::Simd level) {
  benchmark::RegisterBenchmark(name.c_str(), [work, level](benchmark::State& state) {
    base::set_simd_level(level);
    // Number of output buffers, like the slots of a loader.
    constexpr std::size_t kPlaces = 8;
    const std::size_t place = (work.out_bytes + 63) / 64 * 64;
    Buffer out;
    auto* to = reinterpret_cast<std::byte*>(out.reserve(kPlaces * place));
    std::size_t i = 0;
    for (auto _ : state) {
      work.run(i, to + i % kPlaces * place);
      ++i;
      benchmark::ClobberMemory();
    }
  });
}

}  // namespace

int main(int argc, char** argv) {
  cv::setNumThreads(0);
  const std::vector<Work> all = our_work(), peers = opencv_work();
  for (const Work& work : all) {
    check_levels(work);
    for (const Work& peer : peers)
      if (peer.name.starts_with(work.name + "/")) check_close(work, peer);
    for (const base::Simd level : {base::Simd::scalar, base::Simd::avx2, base::Simd::avx512})
      if (level <= base::simd_supported())
        register_timing(work.name + "/" + std::string(base::name_of(level)), work, level);
    for (const Work& peer : peers)
      if (peer.name.starts_with(work.name + "/"))
        register_timing(peer.name, peer, base::simd_supported());
  }
  // OPENCV_CPU_DISABLE removes them.
  benchmark::AddCustomContext("opencv_avx512",
                              cv::checkHardwareSupport(CV_CPU_AVX512_SKX) ? "yes" : "no");
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
