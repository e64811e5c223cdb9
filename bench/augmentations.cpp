// Times each augmentation on a 224x224 RGB image, called through its table as the host does.
// bench/augmentations.py adds torchvision's times. Compares bytes between SIMD levels before
// timing.
//
//   build/augmentation_bench --benchmark_min_time=0.2
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "augment/kernels/kernels.h"
#include "base/rng.h"
#include "base/simd.h"
#include "millrace/buffer.h"
#include "plugins/host/registry.h"
#include "plugins/host/unit.h"

namespace {

using namespace millrace;

constexpr Size kSize{224, 224};
constexpr std::size_t kBytes = 224 * 224 * 3;
constexpr const char* kUnits[] = {
    "invert{p=1}",
    "posterize{p=1}",
    "solarize{p=1}",
    "brightness{factor=1.4}",
    "autocontrast{p=1}",
    "equalize{p=1}",
    "contrast{factor=1.4}",
    "saturation{factor=1.4}",
    "hue{turn=0.1}",
    "grayscale{p=1}",
    "color_jitter{brightness=0.4,contrast=0.4,saturation=0.4,hue=0.1}",
    "sharpness{p=1}",
    "gaussian_blur{kernel_size=5}",
    "gaussian_blur{kernel_size=23}",
    "gaussian_noise",
    "random_erasing{p=1}",
    "random_erasing{p=1,mode=random}",
    "elastic",
    "mixup",
    "cutmix",
};

class Work {
 public:
  explicit Work(const std::string& text) {
    Recipe recipe(op_declarations());
    recipe.set("augment+=" + text);
    const OpSpec& spec = recipe.augment().front();
    unit_ = std::make_unique<plugins::Unit>(plugins::augmentation(spec.op), spec.params);
    const millrace_unit& table = unit_->table();
    const auto scratch = table.pixel != nullptr    ? table.pixel->scratch
                         : table.filter != nullptr ? table.filter->scratch
                                                   : nullptr;
    if (scratch != nullptr)
      context_.call.scratch = scratch_.reserve(scratch(unit_->self(), kSize, 3));
    Draw draw(base::stream({1, 0, 0}, base::op_id("picture")));
    // Smooth with some noise, like photographs.
    for (std::size_t i = 0; i < kBytes; ++i)
      original_[i] =
          static_cast<std::uint8_t>(i / 3 % 224 / 2 + i / 672 / 3 + i % 3 * 9 + draw.integer(20));
    for (auto& element : batch_) element = static_cast<float>(draw.uniform());
  }

  bool is_table() const {
    const millrace_pixel* pixel = unit_->table().pixel;
    return pixel != nullptr && pixel->levels != nullptr;
  }

  /// Applies it to a fresh copy of the picture. The time includes the copy, as torch's includes a
  /// new tensor.
  void run(std::uint64_t sample) {
    const millrace_unit& table = unit_->table();
    millrace_call& call = context_.call;
    call.rng = base::stream({1, 0, sample}, base::op_id(table.name));
    const auto image = [](std::vector<std::uint8_t>& bytes) {
      return Image{bytes.data(), kSize.width, kSize.height, 3, kSize.width * 3};
    };
    if (is_table()) {
      plugins::checked_call(table, call,
                            [&] { return table.pixel->levels(unit_->self(), levels_, 3, &call); });
    } else if (table.pixel != nullptr) {
      std::memcpy(result_.data(), original_.data(), kBytes);
      const Image target = image(result_);
      plugins::checked_call(table, call,
                            [&] { return table.pixel->apply(unit_->self(), &target, &call); });
    } else if (table.filter != nullptr) {
      const Image from = image(original_), to = image(result_);
      plugins::checked_call(table, call,
                            [&] { return table.filter->apply(unit_->self(), &from, &to, &call); });
    } else {
      const millrace_sample form{sizeof form, kSize, 3, MILLRACE_F32, MILLRACE_CHW, 1000};
      plugins::checked_call(table, call, [&] {
        return table.batch->pair(unit_->self(), &form, batch_.data(), batch_.data() + kBytes,
                                 labels_.data(), labels_.data() + 1000, &call);
      });
      std::memcpy(result_.data(), batch_.data(), kBytes);
    }
  }

  const std::vector<std::uint8_t>& result() const { return result_; }

 private:
  std::unique_ptr<plugins::Unit> unit_;
  plugins::CallContext context_;
  Buffer scratch_;
  std::vector<std::uint8_t> original_ = std::vector<std::uint8_t>(kBytes + kTailSlack);
  std::vector<std::uint8_t> result_ = std::vector<std::uint8_t>(kBytes + kTailSlack);
  std::vector<float> batch_ = std::vector<float>(2 * kBytes), labels_ = std::vector<float>(2000);
  std::uint8_t levels_[3][256];
};

void check(const char* text) {
  std::vector<std::uint8_t> expected;
  for (const base::Simd level : {base::Simd::scalar, base::Simd::avx2, base::Simd::avx512}) {
    if (level > base::simd_supported()) continue;
    base::set_simd_level(level);
    Work work(text);
    work.run(0);
    if (expected.empty()) expected = work.result();
    if (work.result() == expected) continue;
    std::printf("%s: other bytes at SIMD level %s\n", text,
                std::string(base::name_of(level)).c_str());
    std::exit(1);
  }
}

void time_unit(benchmark::State& state, const char* text) {
  Work work(text);
  std::uint64_t sample = 0;
  for (auto _ : state) work.run(sample++);
  if (!work.is_table())
    state.counters["ns_a_pixel"] =
        benchmark::Counter(224 * 224 * 1e-9, benchmark::Counter::kIsIterationInvariantRate |
                                                 benchmark::Counter::kInvert);
}

}  // namespace

int main(int argc, char** argv) {
  const base::Simd level = base::simd_level();
  for (const char* text : kUnits) check(text);
  base::set_simd_level(level);
  for (const char* text : kUnits) benchmark::RegisterBenchmark(text, time_unit, text);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
