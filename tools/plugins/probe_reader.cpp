// Probes readers with a missing data set and with a valid one.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "millrace/buffer.h"
#include "tools/plugins/probe.h"

namespace millrace::tools {
namespace {

constexpr const char* kNowhere = "/nowhere/no such data set";

/// Returns null, with the reason in `refused`, if the reader reports one.
std::shared_ptr<const plugins::Unit> make(const millrace_unit& unit, const Params& params,
                                          const std::string& path, const std::string& split,
                                          std::string& refused) {
  std::shared_ptr<const plugins::Unit> made;
  plugins::CallContext context;
  watched_call(context, [&] {
    try {
      made = std::make_shared<const plugins::Unit>(unit, params, path, split);
    } catch (const Error& error) {
      refused = error.what();
    }
    return MILLRACE_OK;
  });
  if (refused.find("threw an exception") != std::string::npos) throw Defect(refused);
  return made;
}

millrace_dataset dataset_of(const plugins::Unit& unit) {
  millrace_dataset set{};
  set.struct_size = sizeof set;
  plugins::CallContext context;
  const Outcome outcome =
      watched_call(context, [&] { return unit.table().reader->dataset(unit.self(), &set); });
  if (outcome.status != MILLRACE_OK) throw Defect("dataset() fails after create() succeeded");
  return set;
}

std::uint8_t* memory(millrace_call* call, std::size_t size) {
  return static_cast<Buffer*>(call->host)->reserve(size);
}

/// Reads one sample; its label precedes its bytes.
Outcome read(const plugins::Unit& unit, const millrace_dataset& set, std::uint64_t index) {
  const millrace_reader& functions = *unit.table().reader;
  Buffer scratch;
  plugins::CallContext context;
  context.call.host = &scratch;
  context.call.memory = &memory;
  millrace_bytes bytes{};
  Outcome outcome = watched_call(
      context, [&] { return functions.borrow(unit.self(), index, &bytes, &context.call); });
  if (outcome.status != MILLRACE_OK) return outcome;
  if (bytes.data == nullptr) throw Defect("borrow() gives no bytes");
  const std::size_t pixels = static_cast<std::size_t>(set.size.width) *
                             static_cast<std::size_t>(set.size.height) *
                             static_cast<std::size_t>(set.channels);
  if (set.encoded == 0) {
    if (bytes.size != pixels)
      throw Defect(fmt::format("a sample has {} bytes, its pixels are {}", bytes.size, pixels));
    std::uint8_t sum = 0;  // the 64 bytes after it must be readable
    for (std::size_t i = 0; i < 64; ++i)
      sum ^= *const_cast<const volatile std::uint8_t*>(bytes.data + bytes.size + i);
    static_cast<void>(sum);
  }
  if (bytes.label < 0 || static_cast<std::uint64_t>(bytes.label) >= set.class_count)
    throw Defect(
        fmt::format("sample {}: label {} of {} classes", index, bytes.label, set.class_count));
  outcome.bytes.resize(sizeof bytes.label + bytes.size);
  std::memcpy(outcome.bytes.data(), &bytes.label, sizeof bytes.label);
  if (bytes.size > 0)
    std::memcpy(outcome.bytes.data() + sizeof bytes.label, bytes.data, bytes.size);
  if (functions.release != nullptr) functions.release(unit.self(), &bytes);
  return outcome;
}

/// Returns some indices of the set, including its ends.
std::vector<std::uint64_t> some_of(std::uint64_t count) {
  std::vector<std::uint64_t> some;
  const std::uint64_t most = std::min<std::uint64_t>(count, 32);
  for (std::uint64_t i = 0; i < most; ++i)
    some.push_back(i * (count - 1) / std::max<std::uint64_t>(1, most - 1));
  some.erase(std::unique(some.begin(), some.end()), some.end());
  return some;
}

std::string try_nothing(const millrace_unit& unit) {
  std::string some;
  for (const Variant& variant : variants_of(unit)) {
    std::string refused;
    if (make(unit, variant.params, kNowhere, "train", refused) != nullptr)
      some = "; it opens without data";
    refused.clear();
    make(unit, variant.params, "", "", refused);
  }
  return "a missing path, an empty path" + some;
}

std::string try_data(const plugins::Unit& unit) {
  const millrace_dataset set = dataset_of(unit);
  if (set.count == 0) throw Defect("the data set has no samples");
  if (set.class_count == 0 || set.classes == nullptr) throw Defect("the data set has no classes");
  for (std::size_t i = 0; i < set.class_count; ++i)
    if (set.classes[i] == nullptr) throw Defect(fmt::format("class {} has no name", i));
  if (set.encoded == 0 &&
      ((set.channels != 1 && set.channels != 3) || set.size.width < 1 || set.size.height < 1))
    throw Defect(fmt::format("images of {}x{} with {} channels", set.size.width, set.size.height,
                             set.channels));
  const std::vector<std::uint64_t> some = some_of(set.count);
  for (const std::uint64_t index : some) {
    const Outcome outcome = read(unit, set, index);
    if (outcome.status != MILLRACE_OK)
      throw Defect(fmt::format("sample {} cannot be read: {}", index, outcome.error));
    for (const std::size_t size : {256, 8, 1}) {
      Guarded text("the name", size, Guarded::Near::behind, 0x7F);
      unit.table().reader->name(unit.self(), index, reinterpret_cast<char*>(text.data()), size);
      text.check();
      if (std::find(text.data(), text.data() + size, 0) == text.data() + size)
        throw Defect(fmt::format("name() does not end its text in {} bytes", size));
      if (size == 256 && text.data()[0] == 0) throw Defect("name() gives no name");
    }
  }
  if (dataset_of(unit).fingerprint != set.fingerprint)
    throw Defect("the fingerprint changes from call to call");
  return fmt::format("{} samples, {} classes, {} tried", set.count, set.class_count, some.size());
}

}  // namespace

void add_reader_steps(std::vector<Step>& steps, const millrace_unit& unit,
                      const CheckOptions& options,
                      const std::function<void(const CheckCost&)>& cost) {
  const auto open_unit = [&unit, options] {
    std::string refused;
    auto made = make(unit, variants_of(unit).front().params, options.path, options.split, refused);
    if (made == nullptr)
      throw Defect(fmt::format("{} cannot be opened: {}", options.path, refused));
    return made;
  };
  steps.push_back({unit.name, "no data", [&unit] { return try_nothing(unit); }});
  steps.push_back({unit.name, "data", [open_unit, options] {
                     if (options.path.empty()) throw Skip("give a data set: --path DIR");
                     return try_data(*open_unit());
                   }});
  if (options.path.empty()) return;
  const auto instance = std::make_shared<std::shared_ptr<const plugins::Unit>>();
  const auto subject = std::make_shared<Subject>(Subject{unit, {}, {}, {}, {}});
  subject->open = [instance, open_unit]() -> Session {
    if (*instance == nullptr) *instance = open_unit();
    const millrace_dataset set = dataset_of(**instance);
    return [shared = *instance, set](const Input& input, const Placement&) {
      return read(*shared, set, input.seed % set.count);
    };
  };
  subject->make_and_drop = [open_unit] { open_unit(); };
  for (std::uint64_t i = 0; i < 24; ++i) subject->inputs.push_back({{0, 0}, 0, i * i * 7});
  subject->costs = {{{0, 0}, 0, 0}};
  add_common_steps(steps, subject, options, cost);
}

}  // namespace millrace::tools
