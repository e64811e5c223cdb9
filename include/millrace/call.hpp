// A unit's call on a sample: errors that it throws, its random draws, the host's services, and the
// arguments of choice, pixel and batch units. Part of millrace.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "millrace/millrace.h"

namespace millrace {
inline namespace plugin_v1 {

/// Thrown when the images or parameters do not fit; `hint` says what to do.
struct BadUse : std::runtime_error {
  explicit BadUse(const std::string& what, std::string todo = {})
      : std::runtime_error(what), hint(std::move(todo)) {}
  std::string hint;
};
/// Thrown for damaged or unsuitable data; `hint` says what to do.
struct BadData : std::runtime_error {
  explicit BadData(const std::string& what, std::string todo = {})
      : std::runtime_error(what), hint(std::move(todo)) {}
  std::string hint;
};

/// Random draws of one unit for one sample, in the order in which it asks. Every call advances the
/// stream.
class Draw {
 public:
  constexpr explicit Draw(const millrace_rng& rng) : rng_(rng) {}
  /// Returns 32 random bits.
  constexpr std::uint32_t bits() { return millrace_rng_bits(&rng_); }
  /// Returns a number uniform on [0, 1), a multiple of 2^-32.
  constexpr double uniform() { return bits() * 0x1p-32; }
  /// Returns a number uniform on [low, high).
  constexpr double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// Returns a whole number uniform on 0 .. count-1 (bias below count * 2^-32).
  constexpr std::uint32_t integer(std::uint32_t count) {
    return static_cast<std::uint32_t>((std::uint64_t{bits()} * count) >> 32);
  }
  /// Returns true with probability p.
  constexpr bool chance(double p) { return uniform() < p; }

 private:
  millrace_rng rng_;
};

/// One call on one sample: its random numbers and the host's services. Valid during the call.
class Call : public Draw {
 public:
  explicit Call(millrace_call* raw) : Draw(raw->rng), raw_(raw) {}
  /// Reports a drawn value by name; `inspect` prints it.
  void report(const char* name, double value) {
    if (raw_->report != nullptr) raw_->report(raw_, name, value);
  }
  /// Logs a line, if the host listens.
  void log(const char* line) {
    if (raw_->log != nullptr) raw_->log(raw_, line);
  }
  /// Returns whether the result is no longer needed.
  bool cancelled() const { return raw_->cancelled != nullptr && raw_->cancelled(raw_) != 0; }
  /// Returns the memory that the class's scratch() asked for: 64-byte aligned, contents undefined.
  template <class T = std::uint8_t>
  T* scratch() {
    return static_cast<T*>(raw_->scratch);
  }
  /// Readers: returns memory for a sample's bytes, or null if memory is short.
  std::uint8_t* memory(std::size_t size) { return raw_->memory(raw_, size); }

 private:
  millrace_call* raw_;
};

/// Collects the children to apply to a sample, in order.
class Chosen {
 public:
  explicit Chosen(std::uint32_t* places) : places_(places) {}
  /// Appends a child by its index. Throws BadUse beyond MILLRACE_MOST_CHOSEN.
  void add(std::uint32_t child) {
    if (count_ == MILLRACE_MOST_CHOSEN) throw BadUse("more children than a sample may get");
    places_[count_++] = child;
  }
  std::size_t count() const { return count_; }

 private:
  std::uint32_t* places_;
  std::size_t count_ = 0;
};

/// One table per channel, which holds 0..255 on entry.
struct Levels {
  std::uint8_t (*table)[256];
  int channels;
};

/// Two samples of a batch and the probabilities of their labels.
struct Pair {
  const millrace_sample& sample;
  void* first;
  void* second;
  float* first_labels;
  float* second_labels;
};

/// A group of neighbouring samples of a batch and the probabilities of their labels: `count` of
/// each. `count` is the class's kGroup, or at least 2 with MILLRACE_WHOLE_BATCH.
struct Group {
  const millrace_sample& sample;
  void* const* samples;
  float* const* labels;
  std::size_t count;
};

/// A rectangle of one sample of a group that shows another one, moved.
using Part = millrace_part;

/// Collects the parts of a group's samples, those of the first sample first.
class Parts {
 public:
  Parts(Part* parts, std::size_t samples) : parts_(parts), samples_(samples) {}
  /// Returns the number of samples in the group.
  std::size_t samples() const { return samples_; }
  /// Appends a part. Throws BadUse beyond MILLRACE_MOST_PARTS for each sample of the group.
  void add(const Part& part) {
    if (count_ == MILLRACE_MOST_PARTS * samples_) throw BadUse("more parts than a group may have");
    parts_[count_++] = part;
  }
  std::size_t count() const { return count_; }

 private:
  Part* parts_;
  std::size_t samples_;
  std::size_t count_ = 0;
};

/// Other pixels that a pixel's result may depend on.
struct Reach {
  std::int32_t kind = MILLRACE_POINTWISE;
  std::int32_t halo = 0;
};

}  // namespace plugin_v1
}  // namespace millrace
