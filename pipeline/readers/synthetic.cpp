#include "pipeline/readers/synthetic.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "millrace/buffer.h"
#include "millrace/error.h"
#include "pipeline/readers/data_set.h"

namespace millrace::pipeline {
namespace {

/// Generates images as windows into one block of noise. A window's position is a function of the
/// index, so that a sample costs no more than a pointer.
class SyntheticReader final : public Reader {
 public:
  explicit SyntheticReader(const DataOptions& options) : options_(options.synthetic) {
    const int classes = options.classes != 0 ? options.classes : options_.classes;
    if (options_.channels != 1 && options_.channels != 3)
      throw UsageError(
          fmt::format("data.synthetic.channels={}: an image has 1 or 3", options_.channels),
          "1 is gray, 3 is RGB");
    info_.reader = "synthetic";
    info_.path = "synthetic";  // data.path may name another reader's set
    info_.split = options.split;
    info_.count = options_.count;
    info_.classes = numbered_classes(classes);
    info_.size = options_.size;
    info_.channels = options_.channels;
    info_.in_place = true;
    image_bytes_ = static_cast<std::size_t>(options_.size.width) *
                   static_cast<std::size_t>(options_.size.height) *
                   static_cast<std::size_t>(options_.channels);
    info_.bytes = image_bytes_ * info_.count;
    key_ = base::mix64(options.split == "train" ? 1 : 2);

    constexpr std::size_t kWindows = 1 << 16;
    windows_ = kWindows;
    noise_.resize(image_bytes_ + windows_ + kTailSlack);
    for (std::size_t i = 0; i < noise_.size(); ++i)
      noise_[i] = static_cast<std::uint8_t>(base::mix64(key_ + i) >> 56);
    Fingerprint fingerprint;
    fingerprint.add(std::string_view("synthetic 1"));
    for (const std::uint64_t number :
         {key_, info_.count, static_cast<std::uint64_t>(options_.size.width),
          static_cast<std::uint64_t>(options_.size.height),
          static_cast<std::uint64_t>(options_.channels), static_cast<std::uint64_t>(classes)})
      fingerprint.add(number);
    info_.fingerprint = fingerprint.value();
  }

  Sample read(std::uint64_t index, Buffer&) const override {
    return {{noise_.data() + base::mix64(key_ ^ index) % windows_, image_bytes_},
            static_cast<std::int64_t>(index % info_.classes.size())};
  }
  std::string name(std::uint64_t index) const override {
    return fmt::format("synthetic image {}", index);
  }

 private:
  SyntheticOptions options_;
  std::size_t image_bytes_ = 0;
  std::size_t windows_ = 1;
  std::uint64_t key_ = 0;
  std::vector<std::uint8_t> noise_;
};

}  // namespace

std::unique_ptr<Reader> open_synthetic(const DataOptions& options) {
  return std::make_unique<SyntheticReader>(options);
}

}  // namespace millrace::pipeline
