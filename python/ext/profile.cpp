// Runs samples through a plan with a trace, and adds up its steps.
#include "python/ext/profile.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "augment/plan/plan.h"
#include "base/clock.h"
#include "millrace/buffer.h"
#include "millrace/error.h"
#include "millrace/transform.h"
#include "pipeline/decoders/decoder.h"
#include "python/ext/samples.h"

namespace millrace::python {
namespace {

/// Decodes what is asked for.
class Encoded final : public PixelSource {
 public:
  Encoded(pipeline::DecodeScratch& decode, const Transform& plan)
      : decode_(decode), channels_(plan.output().channels), depth_(plan.depth()) {}
  Size size() const override { return decode_.image().size; }
  std::uint32_t scales() const override { return decode_.image().scales; }
  bool serves_regions() const override { return true; }
  ImageView pixels(const Rect& region, int scale) override {
    return decode_.decode(channels_, region, scale, depth_);
  }

 private:
  pipeline::DecodeScratch& decode_;
  int channels_;
  Depth depth_;
};

/// Runs single samples, in memory that they share.
class Bench {
 public:
  Bench(const Reader& reader, const augment::Plan& plan, std::uint64_t max_pixels)
      : reader_(reader),
        plan_(plan),
        max_pixels_(max_pixels),
        scratch_(plan.make_scratch()),
        out_(plan.output().bytes() + kTailSlack) {}

  augment::Trace run(const SampleKey& key) {
    augment::Trace trace;
    const DatasetInfo& info = reader_.info();
    const std::int64_t begin = base::Clock::steady_ns();
    const Sample sample = reader_.read(key.sample, bytes_);
    if (info.reader == kSamplesReader)
      trace.steps.push_back({"fetch", {}, "", base::Clock::steady_ns() - begin});
    if (info.encoded) {
      decode_.open(sample.bytes, max_pixels_);
      Encoded image(decode_, plan_);
      plan_.run(key, image, out_.data(), *scratch_, &trace);
    } else {
      const std::uint8_t* pixels = sample.bytes.data();
      WholeImage image(info.planar ? planar(pixels, info.size, info.channels)
                                   : interleaved(pixels, info.size, info.channels));
      plan_.run(key, image, out_.data(), *scratch_, &trace);
    }
    return trace;
  }

 private:
  const Reader& reader_;
  const augment::Plan& plan_;
  const std::uint64_t max_pixels_;
  std::unique_ptr<Transform::Scratch> scratch_;
  std::vector<std::byte> out_;
  Buffer bytes_;
  pipeline::DecodeScratch decode_;
};

}  // namespace

std::vector<StepCost> profile(const Reader& reader, const augment::Plan& plan,
                              std::uint64_t max_pixels, std::uint64_t seed, std::uint64_t samples) {
  const std::uint64_t count = reader.info().count;
  const std::uint64_t runs = std::clamp<std::uint64_t>(samples, 1, count);
  std::vector<StepCost> costs;
  Bench bench(reader, plan, max_pixels);
  for (std::uint64_t i = 0; i <= runs; ++i) {  // the first one warms up
    const std::uint64_t index = i == 0 ? 0 : (i - 1) * count / runs;
    augment::Trace trace;
    try {
      trace = bench.run({seed, 0, index});
    } catch (const Error& error) {
      throw Error(error.exit(), reader.name(index) + ": " + error.what(), error.hint());
    }
    if (i == 0) continue;
    for (augment::Trace::Step& step : trace.steps) {
      auto found = std::find_if(costs.begin(), costs.end(), [&](const StepCost& cost) {
        return cost.what == step.what && cost.ops == step.ops;
      });
      if (found == costs.end())
        found = costs.insert(costs.end(), {std::move(step.what), std::move(step.ops), 0});
      found->s_per_sample += static_cast<double>(step.ns) * 1e-9 / static_cast<double>(runs);
    }
  }
  return costs;
}

}  // namespace millrace::python
