// The nearest warp of MNIST's size with the normalising store, beside OpenCV's for the same work.
// Both results are compared before anything is timed.
//
//   build/kernel_bench --benchmark_repetitions=5
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>
#include <vector>

#include "augment/fold.h"
#include "augment/plan.h"
#include "augment/random_affine.h"
#include "augment/resample.h"
#include "pipeline/buffer.h"

namespace {

using namespace millrace;

constexpr Size kSize{28, 28};
constexpr std::size_t kPixels = 28 * 28;
constexpr std::size_t kImages = 512;  // fits the second-level cache

struct Work {
  std::vector<std::uint8_t> pixels = std::vector<std::uint8_t>(kImages * kPixels + kTailSlack);
  std::vector<std::array<double, 6>> maps;
  Store store{DType::f32, Layout::chw, 1, {0.1307}, {0.3081}};

  Work() {
    for (std::size_t i = 0; i < kImages; ++i) {
      Draw draw({1, 0, i}, op_id("bench"));
      for (std::size_t p = 0; p < kPixels; ++p)
        pixels[i * kPixels + p] = static_cast<std::uint8_t>(draw.bits());
      const AffineParameters p{draw.uniform(-15, 15),
                               std::floor(draw.uniform(-2, 3)),
                               std::floor(draw.uniform(-2, 3)),
                               draw.uniform(0.8, 1.2),
                               0,
                               0};
      maps.push_back(inverse_affine(p, 14, 14));
    }
  }

  void ours(std::size_t i, float* out) const {
    static ResampleScratch scratch;
    Warp warp = Warp::identity(kSize);
    const auto& m = maps[i];
    warp.map = {m[0], m[1], m[2], m[3], m[4], m[5], 0, 0, 1};
    warp.filter = Filter::nearest;
    FoldedPass pass(interleaved(&pixels[i * kPixels], kSize, 1));
    pass.add(warp);
    resample(pass, store, reinterpret_cast<std::byte*>(out), scratch);
  }

  void opencv(std::size_t i, cv::Mat& warped, float* out) const {
    const cv::Mat source(28, 28, CV_8UC1, const_cast<std::uint8_t*>(&pixels[i * kPixels]));
    const auto& m = maps[i];
    // Pixel centres at whole numbers there, at halves here.
    const cv::Matx23d map(m[0], m[1], m[2] + 0.5 * (m[0] + m[1]) - 0.5, m[3], m[4],
                          m[5] + 0.5 * (m[3] + m[4]) - 0.5);
    cv::warpAffine(source, warped, map, {28, 28}, cv::INTER_NEAREST | cv::WARP_INVERSE_MAP);
    cv::Mat result(28, 28, CV_32FC1, out);
    warped.convertTo(result, CV_32F, 1 / 255.0 / 0.3081, -0.1307 / 0.3081);
  }
};

const Work& work() {
  static const Work one;
  return one;
}

/// OpenCV rounds positions to 1/1024 pixel, so a few pixels fall to a neighbour.
void check() {
  std::vector<float> a(kPixels), b(kPixels);
  cv::Mat warped;
  std::size_t off = 0;
  for (std::size_t i = 0; i < kImages; ++i) {
    work().ours(i, a.data());
    work().opencv(i, warped, b.data());
    for (std::size_t p = 0; p < kPixels; ++p) off += std::abs(a[p] - b[p]) > 1e-4f;
  }
  const double share = static_cast<double>(off) / static_cast<double>(kImages * kPixels);
  std::printf("pixels that differ from OpenCV's: %.3f%%\n", 100 * share);
  if (share > 0.01) {
    std::printf("too many: the two do not do the same work\n");
    std::exit(1);
  }
}

void millrace_nearest(benchmark::State& state) {
  std::vector<float> out(kPixels);
  std::size_t i = 0;
  for (auto _ : state) {
    work().ours(i++ % kImages, out.data());
    benchmark::DoNotOptimize(out.data());
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(millrace_nearest);

void opencv_nearest(benchmark::State& state) {
  std::vector<float> out(kPixels);
  cv::Mat warped;
  std::size_t i = 0;
  for (auto _ : state) {
    work().opencv(i++ % kImages, warped, out.data());
    benchmark::DoNotOptimize(out.data());
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(opencv_nearest);

}  // namespace

int main(int argc, char** argv) {
  cv::setNumThreads(0);
  check();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
