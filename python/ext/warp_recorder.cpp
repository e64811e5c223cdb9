// Records and hands over the maps of samples.
#include "python/ext/warp_recorder.h"

#include <algorithm>
#include <limits>

#include "augment/plan/plan.h"

namespace millrace::python {

void WarpRecorder::run(const SampleKey& key, PixelSource& source, std::byte* out,
                       Scratch& scratch) const {
  augment::WarpMap map;
  if (plan_->soft_classes() > 0) map.lose();  // two images' pixels share the sample
  plan_->run(key, source, out, scratch, nullptr, &map);
  const std::array<float, 9> forward = map.forward();
  const std::lock_guard hold(lock_);
  Entry& entry = maps_[key_of(key.epoch, key.sample)];
  entry.map = forward;
  ++entry.uses;
}

void WarpRecorder::take(std::uint32_t epoch, const std::uint64_t* samples, std::size_t count,
                        float* out) {
  const std::lock_guard hold(lock_);
  for (std::size_t i = 0; i < count; ++i, out += 9) {
    const auto found = maps_.find(key_of(epoch, samples[i]));
    if (found == maps_.end()) {
      std::fill_n(out, 9, std::numeric_limits<float>::quiet_NaN());
      continue;
    }
    std::copy(found->second.map.begin(), found->second.map.end(), out);
    if (--found->second.uses == 0) maps_.erase(found);
  }
}

void WarpRecorder::clear() {
  const std::lock_guard hold(lock_);
  maps_.clear();
}

}  // namespace millrace::python
