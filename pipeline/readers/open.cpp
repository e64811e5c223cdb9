// Finds readers by name (data.reader), among them that of generated images and those of plugins.

#include "pipeline/readers/open.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "base/text.h"
#include "millrace/buffer.h"
#include "millrace/error.h"
#include "millrace/reader.h"
#include "pipeline/decoders/raw_image.h"
#include "pipeline/readers/cifar.h"
#include "pipeline/readers/data_set.h"
#include "pipeline/readers/folder.h"
#include "pipeline/readers/idx.h"
#include "pipeline/readers/manifest.h"
#include "pipeline/readers/storage.h"
#include "pipeline/readers/tar.h"
#include "pipeline/remote/url.h"
#include "plugins/host/registry.h"
#include "plugins/host/unit.h"

namespace millrace::pipeline {

// The reader of generated images.

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

// Adapts a plugin's reader to Reader, and checks what it returns (plugin-safety contract).

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

namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Reader> (*open)(const DataOptions&);
  const char* help;
};

constexpr std::array<Entry, 6> kReaders{
    {{"idx", open_idx, "IDX files, as MNIST comes in; .gz too"},
     {"cifar", open_cifar, "CIFAR-10's and CIFAR-100's binary files"},
     {"folder", open_folder, "image files, a folder a class"},
     {"tar", open_tar, "images in tar files, WebDataset's layout or a folder's; shards"},
     {"manifest", open_manifest, "image files that a CSV or JSONL file lists with their labels"},
     {"synthetic", open_synthetic, "images that are made up, for trying a pipeline"}}};

std::unique_ptr<Reader> cached(std::unique_ptr<Reader> reader, const DataOptions& options) {
  switch (options.cache) {
    case Cache::ram:
      return make_ram_reader(std::move(reader));
    case Cache::cold:
      return make_cold_reader(std::move(reader), options.warn);
    default:
      return reader;
  }
}

}  // namespace
}  // namespace millrace::pipeline

namespace millrace {

std::span<const float> Targets::numbers_of(std::uint64_t index) const {
  const std::size_t each = std::max<std::size_t>(width, 1);
  return std::span(numbers).subspan(static_cast<std::size_t>(index) * each, each);
}

std::string_view Targets::json_of(std::uint64_t index) const {
  const std::uint64_t begin = index > 0 ? ends[index - 1] : 0;
  return std::string_view(text).substr(begin, ends[index] - begin);
}

std::vector<ReaderDeclaration> built_in_readers() {
  std::vector<ReaderDeclaration> all;
  for (const pipeline::Entry& entry : pipeline::kReaders)
    all.push_back({std::string(entry.name), entry.help});
  return all;
}

std::unique_ptr<Reader> open_reader(const DataOptions& options) {
  std::vector<std::string_view> names;
  for (const pipeline::Entry& entry : pipeline::kReaders) {
    if (entry.name == options.reader && entry.name != "tar" && entry.name != "synthetic" &&
        pipeline::is_remote(options.path))
      throw UsageError(fmt::format("data.reader={}: reads local files only, not {}", entry.name,
                                   pipeline::redacted(options.path)),
                       "pack the set (millrace data pack) and set data.reader=tar");
    if (entry.name == options.reader) return pipeline::cached(entry.open(options), options);
    names.push_back(entry.name);
  }
  for (const millrace_unit* unit : plugins::plugin_readers()) {
    if (unit->name == options.reader)
      return pipeline::cached(pipeline::open_plugin_reader(*unit, options), options);
    names.emplace_back(unit->name);
  }
  throw UsageError(fmt::format("data.reader: unknown reader '{}'; choose one of {}", options.reader,
                               fmt::join(names, ", ")),
                   fmt::format("did you mean {}?", base::nearest(options.reader, names)));
}

}  // namespace millrace
