// Yardstick: copies MNIST's images in a shuffled order into batches of bytes, with labels: the part
// of recipe `overhead` that is not overhead.
//
//   build/copy_alone train-images-idx3-ubyte [--passes 4]
#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "bench/yardstick.h"

namespace {

using namespace millrace::yardstick;

constexpr std::size_t kPixels = 28 * 28;
constexpr std::size_t kBatch = 64, kSlots = 5;

}  // namespace

int main(int argc, char** argv) {
  const Options options(argc, argv, "train-images-idx3-ubyte [--passes 4]");
  const auto passes = static_cast<std::size_t>(options.number("--passes", 4));
  const Bytes pixels = idx_pixels(options.path());
  const std::size_t images = pixels.size() / kPixels;
  std::vector<std::uint32_t> order(images);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  std::vector<std::int64_t> classes(images);
  for (std::size_t i = 0; i < images; ++i) classes[i] = static_cast<std::int64_t>(i % 10);

  Bytes slots(kSlots * kBatch * kPixels);
  std::vector<std::int64_t> labels(kSlots * kBatch);
  std::uint64_t checksum = 0;
  const Stopwatch watch;
  for (std::size_t pass = 0; pass < passes; ++pass)
    for (std::size_t i = 0; i < images; ++i) {
      const std::size_t place = i % (kSlots * kBatch);
      std::memcpy(&slots[place * kPixels], &pixels[order[i] * kPixels], kPixels);
      labels[place] = classes[order[i]];
      // Uses the copies of a full ring, so that the compiler keeps them.
      if (place == 0) checksum = 31 * checksum + slots[(i + pass) % slots.size()];
    }
  watch.report(passes * images, checksum + static_cast<std::uint64_t>(labels[0]));
}
