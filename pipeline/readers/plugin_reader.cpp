// Adapts a plugin's reader to Reader, and checks what it returns (plugin-safety contract).
#include "pipeline/readers/plugin_reader.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "millrace/buffer.h"
#include "millrace/error.h"
#include "pipeline/decoders/raw_image.h"
#include "pipeline/readers/data_set.h"
#include "plugins/host/unit.h"

namespace millrace::pipeline {
namespace {

Params params_of(const millrace_unit& unit, const DataOptions& options) {
  Params params(plugins::to_declaration(unit).params);
  for (const auto& [name, value] : options.parameters) params.set(name, value);
  return params;
}

/// Allocates the call's memory in the scratch buffer that read() was given.
std::uint8_t* memory(millrace_call* call, std::size_t size) {
  try {
    return static_cast<Buffer*>(call->host)->reserve(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

class PluginReader final : public Reader {
 public:
  PluginReader(const millrace_unit& unit, const DataOptions& options)
      : unit_(unit, params_of(unit, options), options.path, options.split),
        functions_(*unit.reader) {
    plugins::CallContext context;
    millrace_dataset set{};
    set.struct_size = sizeof set;
    plugins::checked_call(unit, context.call,
                          [&] { return functions_.dataset(unit_.self(), &set); });
    info_.reader = unit.name;
    info_.path = options.path;
    info_.split = options.split;
    info_.count = set.count;
    info_.encoded = set.encoded != 0;
    if (!info_.encoded) {
      info_.size = set.size;
      info_.channels = set.channels;
      info_.planar = set.planar != 0;
    }
    check(set, options);
    for (std::size_t i = 0; i < set.class_count; ++i) info_.classes.emplace_back(set.classes[i]);
    for (auto i = set.class_count; i < static_cast<std::size_t>(options.classes); ++i)
      info_.classes.push_back(std::to_string(i));
    Fingerprint fingerprint;  // two readers may see different sets in the same bytes
    fingerprint.add(unit.name);
    fingerprint.add(set.fingerprint);
    info_.fingerprint = fingerprint.value();
  }

  Sample read(std::uint64_t index, Buffer& scratch) const override {
    plugins::CallContext context;
    context.call.host = &scratch;
    context.call.memory = &memory;
    millrace_bytes bytes{};
    plugins::checked_call(unit_.table(), context.call, [&] {
      return functions_.borrow(unit_.self(), index, &bytes, &context.call);
    });
    Sample sample{{bytes.data, bytes.size}, bytes.label};
    // Copies bytes that must be returned, and raw images, which are read in place: a plugin need
    // not leave room behind encoded ones.
    if (functions_.release != nullptr || (info_.encoded && is_raw(sample.bytes))) {
      std::uint8_t* copy = scratch.reserve(bytes.size);
      if (bytes.size > 0) std::memcpy(copy, bytes.data, bytes.size);
      if (functions_.release != nullptr)
        plugins::guarded_call(unit_.table(), [&] { functions_.release(unit_.self(), &bytes); });
      sample.bytes = {copy, bytes.size};
    }
    check(sample);
    return sample;
  }

  std::string name(std::uint64_t index) const override {
    std::array<char, 4096> text{};
    try {
      const plugins::UnitScope inside(unit_.table());
      functions_.name(unit_.self(), index, text.data(), text.size());
    } catch (...) {  // fall back to the index
      return fmt::format("{} sample {}", info_.path, index);
    }
    text.back() = '\0';
    return text.data();
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw DataError(fmt::format("{}: {}: {}", unit_.table().name, info_.path, what),
                    "report it to the plugin's author; `millrace plugins check` tells more");
  }

  void check(const millrace_dataset& set, const DataOptions& options) const {
    constexpr int kMaxImageSide = 32'768;
    if (set.count == 0) refuse("no samples");
    if (set.class_count > 0 && set.classes == nullptr)
      refuse(fmt::format("{} classes announced, none given", set.class_count));
    if (!info_.encoded && (info_.channels != 1 && info_.channels != 3))
      refuse(fmt::format("images of {} channels: 1 or 3 are possible", info_.channels));
    if (!info_.encoded && (info_.size.width < 1 || info_.size.height < 1 ||
                           info_.size.width > kMaxImageSide || info_.size.height > kMaxImageSide))
      refuse(fmt::format("images of {}x{} pixels", info_.size.width, info_.size.height));
    if (options.classes > 0 && set.class_count > static_cast<std::size_t>(options.classes))
      throw DataError(fmt::format("{}: {} classes, but labels must lie below {}", info_.path,
                                  set.class_count, options.classes),
                      fmt::format("set model.classes={}, or leave it out", set.class_count));
    if (options.classes == 0 && set.class_count == 0) refuse("no classes");
  }

  void check(const Sample& sample) const {
    const std::size_t expected = static_cast<std::size_t>(info_.size.width) *
                                 static_cast<std::size_t>(info_.size.height) *
                                 static_cast<std::size_t>(info_.channels);
    if (sample.bytes.data() == nullptr) refuse("a sample without bytes");
    if (!info_.encoded && sample.bytes.size() != expected)
      refuse(fmt::format("a sample of {} bytes where {}x{} pixels take {}", sample.bytes.size(),
                         info_.size.width, info_.size.height, expected));
    if (sample.label < 0 || static_cast<std::uint64_t>(sample.label) >= info_.classes.size())
      refuse(fmt::format("label {} of {} classes", sample.label, info_.classes.size()));
  }

  plugins::Unit unit_;
  const millrace_reader& functions_;
};

}  // namespace

std::unique_ptr<Reader> open_plugin_reader(const millrace_unit& unit, const DataOptions& options) {
  return std::make_unique<PluginReader>(unit, options);
}

}  // namespace millrace::pipeline
