// Weights, images and labels that C++ and Python compute alike (tests/golden/make_lenet_losses.py).
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "millrace/loader.h"

namespace millrace::test {

/// Returns element `i` of the tensor named by `salt`, in [-scale / 2, scale / 2); exact for scale =
/// 2^n.
inline float formula(std::uint32_t i, std::uint32_t salt, float scale) {
  std::uint32_t h = (i + salt * 0x10001u) * 0x9E3779B1u;
  h = (h ^ (h >> 15)) * 0x85EBCA77u;
  h ^= h >> 13;
  return (static_cast<float>(h >> 8) * 0x1p-24f - 0.5f) * scale;
}

/// Samples without content, with labels 7i mod `classes`; the transform makes up the pixels.
class FormulaReader : public Reader {
 public:
  FormulaReader(std::uint64_t count, int classes) : classes_(classes), pixel_(1 + kTailSlack) {
    info_.reader = "formula";
    info_.count = count;
    info_.size = {1, 1};
    info_.channels = 1;
    for (int c = 0; c < classes; ++c) info_.classes.push_back(std::to_string(c));
  }
  Sample read(std::uint64_t index, Buffer&) const override {
    return {{pixel_.data(), 1}, static_cast<std::int64_t>(index * 7) % classes_};
  }
  std::string name(std::uint64_t index) const override { return std::to_string(index); }

 private:
  int classes_;
  std::vector<std::uint8_t> pixel_;
};

/// Writes formula(., 1000 + sample, 2) in place of every image.
class FormulaTransform : public Transform {
 public:
  explicit FormulaTransform(const SampleSpec& spec) : spec_(spec) {}
  std::unique_ptr<Scratch> make_scratch() const override { return std::make_unique<Scratch>(); }
  const SampleSpec& output() const override { return spec_; }
  void run(const SampleKey& key, PixelSource&, std::byte* out, Scratch&) const override {
    for (std::uint32_t i = 0; i < spec_.elements(); ++i) {
      const float value = formula(i, 1000 + static_cast<std::uint32_t>(key.sample), 2);
      std::memcpy(out + i * sizeof value, &value, sizeof value);
    }
  }

 private:
  SampleSpec spec_;
};

/// Returns a loader over such samples, in order, on the caller's thread.
inline Loader formula_loader(const SampleSpec& spec, std::uint64_t samples, LoaderOptions options,
                             int classes = 10) {
  options.workers = 0;
  options.shuffle.kind = Shuffle::Kind::none;
  return Loader(std::make_shared<FormulaReader>(samples, classes),
                std::make_shared<FormulaTransform>(spec), options);
}
inline Loader formula_loader(const SampleSpec& spec, std::uint64_t samples, std::int64_t batch,
                             std::uint64_t epochs = 1, int classes = 10) {
  LoaderOptions options;
  options.batch = batch;
  options.epochs = epochs;
  return formula_loader(spec, samples, options, classes);
}

}  // namespace millrace::test
