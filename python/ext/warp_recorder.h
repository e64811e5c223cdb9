// Keeps the map of each sample until its batch is handed out.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "augment/plan/plan.h"
#include "millrace/transform.h"

namespace millrace::python {

/// A plan that also records what it did to the positions of pixels. Used only where warps are asked
/// for, so that other loaders do not pay for it.
class WarpRecorder final : public Transform {
 public:
  explicit WarpRecorder(std::shared_ptr<const augment::Plan> plan) : plan_(std::move(plan)) {}

  std::unique_ptr<Scratch> make_scratch() const override { return plan_->make_scratch(); }
  const SampleSpec& output() const override { return plan_->output(); }
  int full_copies() const override { return plan_->full_copies(); }
  void run(const SampleKey& key, PixelSource& source, std::byte* out,
           Scratch& scratch) const override;
  int soft_classes() const override { return plan_->soft_classes(); }
  int group() const override { return plan_->group(); }
  void mix(const SampleKey& key, const Neighbours& batch, Scratch& scratch) const override {
    plan_->mix(key, batch, scratch);
  }

  /// Moves the maps of `count` samples to `out`, nine numbers each: W of WarpMap::forward(). NaN
  /// for a sample that was not transformed, and for all where neighbours are mixed.
  void take(std::uint32_t epoch, const std::uint64_t* samples, std::size_t count, float* out);
  /// Forgets the maps of batches that are not handed out.
  void clear();

 private:
  struct Entry {
    std::array<float, 9> map;
    int uses = 0;  ///< places that hold the sample: several with loader.on_error=replace
  };
  /// Key by epoch and sample, which keyed draws tell apart by 48 bits.
  static std::uint64_t key_of(std::uint32_t epoch, std::uint64_t sample) {
    return static_cast<std::uint64_t>(epoch) << 48 ^ sample;
  }

  std::shared_ptr<const augment::Plan> plan_;
  mutable std::mutex lock_;
  mutable std::unordered_map<std::uint64_t, Entry> maps_;
};

}  // namespace millrace::python
