// Compares JPEG decoding with libjpeg-turbo's own tjDecompress2 (handle reused, accurate DCT, fancy
// upsampling): whole images, the windows of random_resized_crop, and scales by DCT. Whole images
// and windows also with decode.jpeg=libjpeg. Files are in memory. Results are compared before
// timing, and variants take turns image by image.
//
//   build/decode_bench FOLDER [rounds] [most files]
//
// Instructions per variant, the sum over all files and rounds:
//
//   valgrind --tool=callgrind --callgrind-out-file=OUT build/decode_bench FOLDER 1
//   callgrind_annotate --inclusive=yes OUT | grep 'decode_as<'
#include <fmt/format.h>
#include <turbojpeg.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "millrace/limits.h"
#include "pipeline/decoders/decoder.h"
#include "pipeline/decoders/jpeg/jpeg.h"

namespace {

using namespace millrace;
using Bytes = std::vector<std::uint8_t>;

std::vector<Bytes> read_files(const std::filesystem::path& folder, std::size_t most) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  const std::size_t step = std::max<std::size_t>(1, paths.size() / most);
  std::vector<Bytes> files;
  for (std::size_t i = 0; i < paths.size() && files.size() < most; i += step) {
    std::ifstream file(paths[i], std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return files;
}

/// Draws random_resized_crop's window: a share of the area from 8% to all, sides 3:4 to 4:3.
Rect random_window(Size size, Draw& draw) {
  const double area = static_cast<double>(size.width) * size.height;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double part = area * draw.uniform(0.08, 1);
    const double ratio = std::exp(draw.uniform(std::log(3. / 4), std::log(4. / 3)));
    const int width = static_cast<int>(std::lround(std::sqrt(part * ratio)));
    const int height = static_cast<int>(std::lround(std::sqrt(part / ratio)));
    if (width < 1 || height < 1 || width > size.width || height > size.height) continue;
    const int x =
        static_cast<int>(draw.integer(static_cast<std::uint32_t>(size.width - width + 1)));
    const int y =
        static_cast<int>(draw.integer(static_cast<std::uint32_t>(size.height - height + 1)));
    return {x, y, x + width, y + height};
  }
  return {0, 0, size.width, size.height};
}

struct Turbo {
  tjhandle handle = tjInitDecompress();
  Buffer pixels;

  Turbo() = default;
  Turbo(const Turbo&) = delete;
  Turbo& operator=(const Turbo&) = delete;
  ~Turbo() { tjDestroy(handle); }

  /// The size is known, as in a loader that has already read the header.
  const std::uint8_t* decode(const Bytes& file, Size size) {
    // Offset by 16, like malloc's memory for whole images, with which libjpeg-turbo is faster.
    std::uint8_t* out =
        pixels.reserve(
            static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height) * 3 + 16) +
        16;
    if (tjDecompress2(handle, file.data(), file.size(), out, size.width, 0, size.height, TJPF_RGB,
                      TJFLAG_ACCURATEDCT) != 0)
      return nullptr;
    return out;
  }
};

double cpu_now() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

Rect whole(Size size, int scale = 0) {
  return {0, 0, (size.width + (1 << scale) - 1) >> scale,
          (size.height + (1 << scale) - 1) >> scale};
}

/// Checks that the decoders agree, and how far DCT scaling is from the mean of the pixels.
class Check {
 public:
  void image(const Bytes& file, Size size, const std::uint8_t* expected, Draw& draw) {
    ours_.open(file, kMaxPixels);
    const ImageView all = ours_.decode(3, whole(size));
    const auto row = static_cast<std::size_t>(size.width) * 3;
    for (int y = 0; y < size.height; ++y)
      same_ &= std::memcmp(all.at(0, y), expected + static_cast<std::size_t>(y) * row, row) == 0;
    const Rect window = random_window(size, draw);
    const ImageView part = ours_.decode(3, window);
    for (int y = window.y0; y < window.y1; ++y)
      same_ &= std::memcmp(part.at(window.x0, y),
                           expected + static_cast<std::size_t>(y) * row + window.x0 * 3,
                           static_cast<std::size_t>(window.x1 - window.x0) * 3) == 0;
    for (int scale = 1; scale <= 3; ++scale) add_error(size, expected, scale);
  }

  bool same() const { return same_; }
  void print() const {
    for (int scale = 1; scale <= 3; ++scale) {
      const Error& error = errors_[scale];
      fmt::print(
          "  1/{} by DCT against the mean of the pixels: {:.2f} levels on average, {:.2f}% of "
          "levels differ by more than 8, at most {:.0f}\n",
          1 << scale, error.sum / error.count, 100 * error.large / error.count, error.most);
    }
  }

 private:
  struct Error {
    double sum = 0, count = 0, most = 0, large = 0;
  };

  void add_error(Size size, const std::uint8_t* pixels, int scale) {
    const int step = 1 << scale;
    const ImageView small = ours_.decode(3, whole(size, scale), scale);
    Error& error = errors_[scale];
    for (int y = 0; y < size.height / step; ++y)
      for (int x = 0; x < size.width / step; ++x)
        for (int c = 0; c < 3; ++c) {
          int sum = 0;
          for (int v = 0; v < step; ++v)
            for (int u = 0; u < step; ++u)
              sum += pixels[((y * step + v) * size.width + x * step + u) * 3 + c];
          const double off = std::abs(*small.at(x, y, c) - static_cast<double>(sum) / step / step);
          error.sum += off;
          error.count += 1;
          error.large += off > 8 ? 1 : 0;
          error.most = std::max(error.most, off);
        }
  }

  pipeline::DecodeScratch ours_;
  bool same_ = true;
  Error errors_[4];
};

enum { kTurbo, kWholeOld, kWindowOld, kWhole, kWindow, kHalf, kQuarter, kEighth, kVariants };
constexpr const char* kNames[] = {
    "libjpeg-turbo, whole", "whole, jpeg=libjpeg", "window, jpeg=libjpeg", "ours, whole",
    "ours, window",         "ours, 1/2 by DCT",    "1/4 by DCT",           "1/8 by DCT"};

struct Decoders {
  Turbo turbo;
  pipeline::DecodeScratch ours, theirs;
};

/// Decodes a file as one variant. Each is a function of its own, which a profiler tells apart.
template <int variant>
[[gnu::noinline]] void decode_as(Decoders& with, const Bytes& file, Size size, const Rect& window) {
  if constexpr (variant == kTurbo) {
    with.turbo.decode(file, size);
  } else {
    constexpr bool is_old = variant == kWholeOld || variant == kWindowOld;
    constexpr bool is_window = variant == kWindowOld || variant == kWindow;
    constexpr int scale = variant < kHalf ? 0 : variant - kHalf + 1;
    pipeline::DecodeScratch& scratch = is_old ? with.theirs : with.ours;
    scratch.open(file, kMaxPixels);
    scratch.decode(3, is_window ? window : whole(size, scale), scale);
  }
}
constexpr auto kDecodeAs = []<int... variant>(std::integer_sequence<int, variant...>) {
  return std::array{&decode_as<variant>...};
}
(std::make_integer_sequence<int, kVariants>{});

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: decode_bench FOLDER [rounds] [most files]\n");
    return 2;
  }
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 11;
  const auto files = read_files(argv[1], argc > 3 ? std::strtoul(argv[3], nullptr, 10) : 2000);

  Decoders with;
  std::vector<Size> sizes;
  double pixels = 0;
  Check check;
  for (const Bytes& file : files) {
    Draw draw(base::stream({1, 0, sizes.size()}, base::op_id("check")));
    const Size size = with.ours.open(file, kMaxPixels).stored;
    sizes.push_back(size);
    pixels += static_cast<double>(size.width) * size.height;
    const std::uint8_t* expected = with.turbo.decode(file, size);
    if (expected == nullptr || with.ours.image().orientation != 1) {
      fmt::print("an image that cannot be compared\n");
      return 1;
    }
    check.image(file, size, expected, draw);
  }
  fmt::print(
      "{} images, {:.0f} pixels on average; whole images and windows equal to "
      "libjpeg-turbo's: {}\n",
      files.size(), pixels / static_cast<double>(files.size()), check.same() ? "yes" : "no");
  check.print();
  if (!check.same()) return 1;
  const pipeline::JpegCounts counts = pipeline::jpeg_counts();
  fmt::print("{}\n", pipeline::jpeg_summary(counts));
  std::uint64_t decoded = 0;
  for (const std::uint64_t number : counts) decoded += number;
  if (static_cast<double>(counts[0]) < .99 * static_cast<double>(decoded)) {
    fmt::print("too few images were decoded by millrace's own decoder\n");
    return 1;
  }

  with.theirs.use_libjpeg(true);
  std::vector<double> us[kVariants];
  for (int round = 0; round < rounds; ++round) {
    double sums[kVariants] = {};
    for (std::size_t i = 0; i < files.size(); ++i) {
      const Bytes& file = files[i];
      const Size size = sizes[i];
      Draw draw(base::stream({1, static_cast<std::uint32_t>(round), i}, base::op_id("window")));
      const Rect window = random_window(size, draw);
      for (int turn = 0; turn < kVariants; ++turn) {
        const int variant = (turn + round) % kVariants;
        const double begin = cpu_now();
        kDecodeAs[static_cast<std::size_t>(variant)](with, file, size, window);
        sums[variant] += cpu_now() - begin;
      }
    }
    for (int variant = 0; variant < kVariants; ++variant)
      us[variant].push_back(sums[variant] / static_cast<double>(files.size()));
  }
  fmt::print("{:22}{:>12}{:>18}{:>10}{:>20}\n", "", "µs CPU", "images/CPU s", "ratio",
             "quartiles of it");
  for (int variant = 0; variant < kVariants; ++variant) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < us[variant].size(); ++i)
      ratios.push_back(us[variant][i] / us[kTurbo][i]);
    std::vector<double> times = us[variant];
    std::sort(times.begin(), times.end());
    std::sort(ratios.begin(), ratios.end());
    const auto at = [](const std::vector<double>& sorted, double place) {
      return sorted[static_cast<std::size_t>(place * static_cast<double>(sorted.size() - 1))];
    };
    fmt::print("{:22}{:12.1f}{:18.0f}{:10.3f}{:12.3f} {:.3f}\n", kNames[variant], at(times, .5),
               1e6 / at(times, .5), at(ratios, .5), at(ratios, .25), at(ratios, .75));
  }
}
