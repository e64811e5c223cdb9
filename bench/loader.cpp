// Measures the loader's overhead: CPU time per batch beyond the copy itself (recipe overhead's
// work), and the cost of recording and of the wait breakdown (contract Cheap measurement). Variants
// take turns in one process, so that changes of the machine affect all alike. Prints medians and
// quartiles of the differences.
//
//   build/loader_bench [rounds]
#include "millrace/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "augment/plan/plan.h"
#include "base/clock.h"
#include "base/rng.h"
#include "measure/wait_breakdown.h"
#include "pipeline/loader/shuffled_order.h"
#include "plugins/host/registry.h"

namespace {

using namespace millrace;

constexpr std::uint64_t kImages = 60'000;
constexpr std::size_t kPixels = 28 * 28;
constexpr std::int64_t kBatch = 64;

class Images final : public Reader {
 public:
  Images() : pixels_(kImages * kPixels + kTailSlack) {
    info_.path = "memory";
    info_.split = "train";
    info_.count = kImages;
    info_.classes.resize(10);
    info_.size = {28, 28};
    info_.channels = 1;
    info_.in_place = true;  // like MNIST's files, which are mapped
    for (std::size_t i = 0; i < pixels_.size(); ++i)
      pixels_[i] = static_cast<std::uint8_t>(base::mix64(i) >> 56);
  }
  Sample read(std::uint64_t index, Buffer&) const override {
    return {{&pixels_[index * kPixels], kPixels}, static_cast<std::int64_t>(index % 10)};
  }
  std::string name(std::uint64_t index) const override { return std::to_string(index); }

 private:
  std::vector<std::uint8_t> pixels_;
};

LoaderOptions options_of(int workers, bool record, std::uint64_t epochs = 1) {
  LoaderOptions options;
  options.workers = workers;
  options.batch = kBatch;
  options.epochs = epochs;
  options.record = record;
  return options;
}

/// The work itself: copies the same images in the same order into as many slots.
double copy_us(const Images& images, std::uint64_t epochs, std::uint64_t& check) {
  std::vector<std::uint8_t> slots(5 * kBatch * kPixels);
  std::vector<std::int64_t> labels(kBatch);
  Buffer none;
  std::vector<std::uint64_t> order(kImages);
  double seconds = 0;
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    const pipeline::ShuffledOrder sampler(kImages, {}, 0, static_cast<std::uint32_t>(epoch));
    for (std::uint64_t i = 0; i < kImages; ++i) order[i] = sampler(i);
    const std::int64_t begin = base::Clock::process_cpu_ns();
    for (std::uint64_t i = 0; i < kImages; ++i) {
      const Sample sample = images.read(order[i], none);
      std::uint8_t* place = &slots[(i % (5 * kBatch)) * kPixels];
      std::memcpy(place, sample.bytes.data(), kPixels);
      labels[i % kBatch] = sample.label;
      check += place[5] + static_cast<std::uint64_t>(labels[i % kBatch]);
    }
    seconds += static_cast<double>(base::Clock::process_cpu_ns() - begin) * 1e-9;
  }
  return 1e6 * seconds / (static_cast<double>(kImages) / kBatch * static_cast<double>(epochs));
}

/// Returns an affine warp of some µs per image, so that units have their intended length.
std::shared_ptr<const augment::Plan> warping() {
  std::vector<OpSpec> chain;
  for (const auto& declared : op_declarations()) {
    if (declared.name != "random_affine") continue;
    chain.push_back({declared.name, declared.name, true, Params(declared.params)});
    chain.back().params.set("degrees", std::vector<double>{15});
  }
  return std::make_shared<const augment::Plan>(chain, Source{{28, 28}, 1}, OutputOptions{},
                                               Resample::once);
}

/// Returns the process's CPU time per batch through the loader; computes the wait breakdown if it
/// records.
double loader_us(const std::shared_ptr<const Reader>& reader,
                 const std::shared_ptr<const augment::Plan>& plan, const LoaderOptions& options,
                 std::uint64_t& check) {
  const std::int64_t begin = base::Clock::process_cpu_ns();
  std::uint64_t batches = 0;
  {
    Loader loader(reader, plan, options);
    measure::WaitBreakdown blame;
    while (Batch batch = loader.next()) {
      ++batches;
      if (options.record) {
        const measure::BatchHistory history = batch.history();
        blame.add(history, history.got - history.asked);
      }
      if (plan->output().dtype != DType::u8) continue;
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(batch.data());
      for (std::int64_t i = 0; i < batch.count(); ++i)
        check += bytes[static_cast<std::size_t>(i) * kPixels + 5] +
                 static_cast<std::uint64_t>(batch.labels()[i]);
    }
  }
  return 1e-3 * static_cast<double>(base::Clock::process_cpu_ns() - begin) /
         static_cast<double>(batches);
}

std::string quartiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return fmt::format("{:8.2f}  [{:.2f} .. {:.2f}]", values[n / 2], values[n / 4],
                     values[3 * n / 4]);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(4, std::atoi(argv[1])) : 20;
  constexpr std::uint64_t kEpochs = 4;
  const auto images = std::make_shared<const Images>();
  const auto plain = std::make_shared<const augment::Plan>(
      std::vector<OpSpec>{}, Source{{28, 28}, 1}, OutputOptions{DType::u8, Layout::chw, {0}, {1}},
      Resample::once);
  const auto warped = warping();
  std::vector<double> copies, beyond[3], recording[2], on_warps[2], warps[2];
  for (int round = 0; round < rounds; ++round) {
    std::uint64_t expected = 0;
    const double copy = copy_us(*images, kEpochs, expected);
    copies.push_back(copy);
    for (const int workers : {0, 1, 2}) {
      std::uint64_t check = 0;
      beyond[workers].push_back(
          loader_us(images, plain, options_of(workers, true, kEpochs), check) - copy);
      if (check != expected) {
        fmt::print("workers={}: the batches do not hold the images\n", workers);
        return 1;
      }
    }
  }
  // Uses an order in which drift cancels out of the difference, after a run that is not counted:
  // idle threads of the previous variant may still spin.
  const auto pair = [&](const std::shared_ptr<const augment::Plan>& plan, int workers,
                        double& off_us) {
    std::uint64_t check = 0;
    double sum[2] = {};
    loader_us(images, plan, options_of(workers, false), check);
    for (const bool on : {true, false, false, true, false, true, true, false})
      sum[on] += loader_us(images, plan, options_of(workers, on), check) / 4;
    off_us = sum[false];
    return sum[true] - sum[false];
  };
  for (int round = 0; round < 8 * rounds; ++round) {
    for (const int workers : {0, 1}) {
      double off = 0;
      recording[workers].push_back(pair(plain, workers, off));
      if (round % 4 != 0) continue;
      on_warps[workers].push_back(pair(warped, workers, off));
      warps[workers].push_back(off);
    }
  }
  fmt::print("µs of CPU a batch of {} images of 28x28, {} rounds: median [quartiles]\n", kBatch,
             rounds);
  fmt::print("the copy itself            {}\n", quartiles(copies));
  for (const int workers : {0, 1, 2})
    fmt::print("beyond it, workers={}       {}\n", workers, quartiles(beyond[workers]));
  for (const int workers : {0, 1})
    fmt::print("recording, workers={}       {}\n", workers, quartiles(recording[workers]));
  for (const int workers : {0, 1})
    fmt::print("of an affine, workers={}    {}, beside {}\n", workers, quartiles(on_warps[workers]),
               quartiles(warps[workers]));
}
