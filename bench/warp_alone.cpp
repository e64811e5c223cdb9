// Yardstick: OpenCV's nearest warp and normalisation of MNIST's images into batches of floats, with
// maps drawn beforehand as recipe mnist-lenet draws them. Checks the warp before timing.
//
//   build/warp_alone train-images-idx3-ubyte [--passes 4]
#include <cmath>
#include <cstring>
#include <numbers>
#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>
#include <random>

#include "bench/yardstick.h"

namespace {

using namespace millrace::yardstick;

constexpr int kSide = 28;
constexpr std::size_t kPixels = kSide * kSide;
constexpr std::size_t kBatch = 64, kSlots = 5;
constexpr double kMean = 0.1307, kStd = 0.3081;

/// Maps a pixel of the result to its position in the source, with pixel centres at whole numbers.
cv::Matx23d draw_map(std::mt19937& random) {
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<>(low, high)(random);
  };
  const double angle = uniform(-15, 15) * std::numbers::pi / 180;
  const double shrink = 1 / uniform(0.8, 1.2);
  const double right = std::round(uniform(-2.8, 2.8)), down = std::round(uniform(-2.8, 2.8));
  const double a = std::cos(angle) * shrink, b = std::sin(angle) * shrink;
  constexpr double kCentre = (kSide - 1) / 2.0;
  const double x = kCentre + right, y = kCentre + down;
  return {a, b, kCentre - a * x - b * y, -b, a, kCentre + b * x - a * y};
}

void warp(const std::uint8_t* pixels, const cv::Matx23d& map, cv::Mat& warped, float* out) {
  const cv::Mat source(kSide, kSide, CV_8UC1, const_cast<std::uint8_t*>(pixels));
  cv::warpAffine(source, warped, map, {kSide, kSide}, cv::INTER_NEAREST | cv::WARP_INVERSE_MAP);
  cv::Mat result(kSide, kSide, CV_32FC1, out);
  warped.convertTo(result, CV_32F, 1 / 255.0 / kStd, -kMean / kStd);
}

/// Returns the share of pixels that differ from the exact map; OpenCV rounds to 1/1024 pixel.
double share_off(const Bytes& pixels, const std::vector<cv::Matx23d>& maps) {
  const std::size_t images = std::min<std::size_t>(pixels.size() / kPixels, maps.size());
  std::vector<float> out(kPixels);
  cv::Mat warped;
  std::size_t off = 0;
  for (std::size_t i = 0; i < images; ++i) {
    const cv::Matx23d& m = maps[i];
    warp(&pixels[i * kPixels], m, warped, out.data());
    for (int y = 0; y < kSide; ++y)
      for (int x = 0; x < kSide; ++x) {
        const auto sx = static_cast<int>(std::floor(m(0, 0) * x + m(0, 1) * y + m(0, 2) + 0.5));
        const auto sy = static_cast<int>(std::floor(m(1, 0) * x + m(1, 1) * y + m(1, 2) + 0.5));
        const bool inside = sx >= 0 && sy >= 0 && sx < kSide && sy < kSide;
        const std::size_t at = i * kPixels + static_cast<std::size_t>(inside ? sy * kSide + sx : 0);
        const double value = inside ? pixels[at] : 0;
        const auto expected = static_cast<float>((value / 255 - kMean) / kStd);
        off += std::abs(out[static_cast<std::size_t>(y * kSide + x)] - expected) > 1e-4f;
      }
  }
  return static_cast<double>(off) / static_cast<double>(images * kPixels);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options(argc, argv, "train-images-idx3-ubyte [--passes 4]");
  const auto passes = static_cast<std::size_t>(options.number("--passes", 4));
  cv::setNumThreads(0);
  const Bytes pixels = idx_pixels(options.path());
  const std::size_t images = pixels.size() / kPixels;
  std::mt19937 random(1);
  std::vector<cv::Matx23d> maps(4096);
  for (cv::Matx23d& map : maps) map = draw_map(random);
  if (const double share = share_off(pixels, maps); share > 0.01)
    stop(fmt::format("{:.2f}% of the pixels are wrong", 100 * share));

  std::vector<float> slots(kSlots * kBatch * kPixels);
  cv::Mat warped;
  const Stopwatch watch;
  for (std::size_t i = 0; i < passes * images; ++i)
    warp(&pixels[i % images * kPixels], maps[i % maps.size()], warped,
         &slots[i % (kSlots * kBatch) * kPixels]);
  std::uint64_t checksum = 0;
  for (const float value : slots) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    checksum = 31 * checksum + bits;
  }
  watch.report(passes * images, checksum);
}
