// Probes batch units: groups of samples in guarded memory, and which samples of a group meet.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <span>
#include <vector>

#include "augment/plan/assemble.h"
#include "probe/probe.h"

namespace millrace::probe {
namespace {

constexpr std::int32_t kClasses = 10;
constexpr std::size_t kLabelBytes = kClasses * sizeof(float);
constexpr std::size_t kNone = SIZE_MAX;

/// Writes an element of type `dtype`; half floats between 0.5 and 2.
void put_element(std::uint8_t* at, std::int32_t dtype, std::uint8_t value) {
  const auto put = [at](auto number) { std::memcpy(at, &number, sizeof number); };
  if (dtype == MILLRACE_U8) put(value);
  if (dtype == MILLRACE_F32) put(static_cast<float>(value) / 64 - 2);
  if (dtype == MILLRACE_F16) put(static_cast<std::uint16_t>(0x3800 + value * 4));
  if (dtype == MILLRACE_BF16) put(static_cast<std::uint16_t>(0x3F00 + value));
}

/// Returns type, layout and size of the samples, which the input's number chooses.
millrace_sample form_of(const Input& input, std::size_t count) {
  constexpr std::size_t kFewLarge = 16;  // large images in larger groups would take long
  millrace_sample sample{};
  sample.struct_size = sizeof sample;
  sample.size = input.size;
  if (count > kFewLarge)
    sample.size = {std::min(input.size.width, 17), std::min(input.size.height, 13)};
  sample.channels = input.channels;
  sample.dtype = static_cast<std::int32_t>(input.seed % 4);
  sample.layout = static_cast<std::int32_t>(input.seed / 4 % 2);
  sample.classes = kClasses;
  return sample;
}

/// The samples and labels of a group, each between guard pages, and the lists of where they lie.
class TestGroup {
 public:
  /// Makes `count` samples; the pixels and the label of sample `changed` differ from what they
  /// would be otherwise.
  TestGroup(const millrace_sample& form, std::uint64_t seed, std::size_t count,
            const Placement& placement, std::size_t changed)
      : count_(count),
        sample_list_("the list of samples", count * sizeof(void*), placement.near, 0,
                     alignof(void*)),
        label_list_("the list of labels", count * sizeof(float*), placement.near, 0,
                    alignof(float*)) {
    constexpr std::size_t kSizeOf[] = {4, 1, 2, 2};
    const std::size_t element = kSizeOf[form.dtype];
    const std::size_t elements = static_cast<std::size_t>(form.size.width) *
                                 static_cast<std::size_t>(form.size.height) *
                                 static_cast<std::size_t>(form.channels);
    bytes_ = elements * element;
    for (std::size_t i = 0; i < count; ++i) {
      Guarded& pixels =
          memory_.emplace_back("a sample", bytes_, placement.near, placement.fill, 64);
      Guarded& label = memory_.emplace_back("a label", kLabelBytes, placement.near, 0, 4);
      const std::uint64_t own = seed + 1000 * i + (i == changed ? 500 : 0);
      for (std::size_t e = 0; e < elements; ++e)
        put_element(pixels.data() + e * element, form.dtype, byte_of(own, e));
      samples()[i] = pixels.data();
      labels()[i] = reinterpret_cast<float*>(label.data());
      labels()[i][(seed * 3 + i + (i == changed ? 5 : 0)) % kClasses] = 1;
    }
  }

  void** samples() const { return reinterpret_cast<void**>(sample_list_.data()); }
  float** labels() const { return reinterpret_cast<float**>(label_list_.data()); }
  void check() const {
    for (const Guarded& memory : memory_) memory.check();
    sample_list_.check();
    label_list_.check();
  }
  void check_labels() const {
    for (std::size_t i = 0; i < count_; ++i) {
      double sum = 0;
      for (int c = 0; c < kClasses; ++c) sum += labels()[i][c] >= 0 ? labels()[i][c] : NAN;
      if (!(std::abs(sum - 1) < 1e-3))
        throw Defect(fmt::format("a label's probabilities add up to {} instead of 1", sum));
    }
  }
  /// Returns sample after sample, each followed by its label.
  std::vector<std::uint8_t> bytes() const {
    std::vector<std::uint8_t> all;
    for (const Guarded& memory : memory_)
      all.insert(all.end(), memory.data(), memory.data() + memory.size());
    return all;
  }
  std::size_t bytes_each() const { return bytes_ + kLabelBytes; }

 private:
  std::size_t count_;
  std::size_t bytes_ = 0;
  std::deque<Guarded> memory_;  ///< sample, label, sample, label, ...
  Guarded sample_list_, label_list_;
};

/// Does with a group what the unit's parts() say, as the host does.
void assemble_group(const plugins::Unit& unit, const millrace_sample& form, const TestGroup& group,
                    std::size_t count, millrace_call& call) {
  std::vector<millrace_part> parts(MILLRACE_MOST_PARTS * count);
  try {
    parts.resize(plugins::write_parts(unit, form, count, parts, call));
  } catch (const DataError& error) {
    throw Defect(error.what());
  }
  Buffer copies;
  augment::assemble(
      parts,
      {form.size, form.channels, static_cast<DType>(form.dtype), static_cast<Layout>(form.layout)},
      std::span(group.samples(), count), copies);
  augment::assemble_labels(parts, form.size, kClasses, std::span(group.labels(), count), copies);
}

Outcome call_group(const plugins::Unit& unit, const Input& input, const Placement& placement,
                   std::size_t count, std::size_t changed, std::size_t* bytes_each = nullptr) {
  Calling calling(unit, input, placement);
  const millrace_sample form = form_of(input, count);
  const TestGroup group(form, input.seed, count, placement, changed);
  Outcome outcome = watched_call(calling.context, [&]() -> millrace_status {
    if (plugins::changes_samples(*unit.table().batch))
      return plugins::mix_group(unit, form, group.samples(), group.labels(), count,
                                calling.context.call);
    assemble_group(unit, form, group, count, calling.context.call);
    return MILLRACE_OK;
  });
  group.check();
  if (outcome.status != MILLRACE_OK) return outcome;
  group.check_labels();
  outcome.bytes = group.bytes();
  if (bytes_each != nullptr) *bytes_each = group.bytes_each();
  return outcome;
}

/// Which samples of a group met in any call.
class Meetings {
 public:
  explicit Meetings(std::size_t count) : count_(count), met_(count * count) {}
  void add(std::size_t a, std::size_t b) { met_[a * count_ + b] = true; }
  /// Returns the smallest part of the group, from its first sample on, within which samples met.
  std::size_t smallest() const {
    for (std::size_t size = 1; size < count_; ++size)
      if (count_ % size == 0 && fits(size)) return size;
    return count_;
  }

 private:
  bool fits(std::size_t size) const {
    for (std::size_t a = 0; a < count_; ++a)
      for (std::size_t b = 0; b < count_; ++b)
        if (met_[a * count_ + b] && a / size != b / size) return false;
    return true;
  }

  std::size_t count_;
  std::vector<bool> met_;
};

/// Calls the unit with the draws of `seed`, and again with each sample changed. Returns false if
/// two equal calls differ.
bool look(const plugins::Unit& unit, std::uint64_t seed, std::size_t count, Meetings& meetings) {
  const Input input{{12, 10}, 3, seed};
  std::size_t each = 0;
  const Outcome before = call_group(unit, input, {}, count, kNone, &each);
  if (before.status != MILLRACE_OK) return true;
  if (!call_group(unit, input, {}, count, kNone).same_as(before)) return false;
  for (std::size_t changed = 0; changed < count; ++changed) {
    const Outcome after = call_group(unit, input, {}, count, changed);
    if (after.status != MILLRACE_OK) continue;
    for (std::size_t other = 0; other < count; ++other)
      if (std::memcmp(after.bytes.data() + other * each, before.bytes.data() + other * each,
                      each) != 0)
        meetings.add(changed, other);
  }
  return true;
}

}  // namespace

Outcome run_batch(const plugins::Unit& unit, const Input& input, const Placement& placement) {
  const std::int32_t group = plugins::group_of(unit.table());
  // Whole batches have any number of samples from two on.
  const std::size_t count =
      group == MILLRACE_WHOLE_BATCH ? 2 + input.seed % 7 : static_cast<std::size_t>(group);
  return call_group(unit, input, placement, count, kNone);
}

std::string try_group(const millrace_unit& unit) {
  constexpr std::size_t kWhole = 12;  // can be divided into parts of 2, 3, 4 and 6
  constexpr std::size_t kLargest = 64;
  constexpr std::uint64_t kSeeds = 16;
  const std::int32_t group = plugins::group_of(unit);
  const bool whole = group == MILLRACE_WHOLE_BATCH;
  const std::size_t count = whole ? kWhole : static_cast<std::size_t>(group);
  const std::string declared = whole ? "whole batches" : fmt::format("groups of {}", group);
  if (count > kLargest)
    return fmt::format("declared {}; not checked beyond {}", declared, kLargest);
  Meetings meetings(count);
  for (const Variant& variant : variants_of(unit)) {
    std::unique_ptr<plugins::Unit> instance;
    try {
      instance = std::make_unique<plugins::Unit>(unit, variant.params);
    } catch (const UsageError&) {
      continue;  // the step "parameters" reports it
    }
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed)
      if (!look(*instance, seed, count, meetings))
        return "not checked: its results differ from call to call";
  }
  const std::size_t found = meetings.smallest();
  if (found == 1) return fmt::format("declared {}; no call mixed samples", declared);
  if (found < count)
    throw Defect(fmt::format(
        "it declares {}, but samples meet only within groups of {}: set kGroup to {}, so that "
        "ranks may divide a batch there",
        declared, found, found));
  return fmt::format("declared {}; samples met across all of {}", declared, count);
}

}  // namespace millrace::probe
