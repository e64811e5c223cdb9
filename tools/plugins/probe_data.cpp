// Probes units that take data from outside: decoders and readers.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/rng.h"
#include "millrace/buffer.h"
#include "millrace/limits.h"
#include "pipeline/readers/mapped_file.h"
#include "probe/probe.h"
#include "tools/plugins/plugins.h"

namespace millrace::tools {

using namespace probe;

// Probes decoders with no bytes, noise, a valid image, and truncated or damaged ones.

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::uint64_t kPixelLimit = std::uint64_t{1} << 24;  ///< most pixels of a damaged image

std::uint8_t noise(std::uint64_t seed, std::uint64_t at) {
  return static_cast<std::uint8_t>(base::mix64(seed << 32 ^ at) >> 56);
}

/// Copies the bytes to memory that ends at a guard page.
std::unique_ptr<Guarded> lend(const Bytes& bytes) {
  auto memory =
      std::make_unique<Guarded>("the image's bytes", bytes.size(), Guarded::Near::behind, 0);
  std::copy(bytes.begin(), bytes.end(), memory->data());
  memory->protect();
  return memory;
}

/// A decoder's context, closed at the end.
class Context {
 public:
  explicit Context(const millrace_unit& unit)
      : functions_(*unit.decoder), memory_(functions_.open(nullptr)) {
    if (memory_ == nullptr) throw Defect("open() gives null");
  }
  ~Context() { functions_.close(memory_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  void* get() const { return memory_; }

 private:
  const millrace_decoder& functions_;
  void* memory_;
};

Outcome read_header(const millrace_unit& unit, const Context& context, const Guarded& bytes,
                    millrace_image_header& header) {
  plugins::CallContext call;
  Outcome outcome = watched_call(call, [&] {
    return unit.decoder->header(context.get(), bytes.data(), bytes.size(), &header, &call.call);
  });
  if (outcome.status != MILLRACE_OK) return outcome;
  if (header.channels != 1 && header.channels != 3)
    throw Defect(fmt::format("header() says {} channels: 1 or 3 are possible", header.channels));
  if (header.orientation > 8)
    throw Defect(
        fmt::format("header() says orientation {}: 0 to 8 are possible", header.orientation));
  if (header.depth != 0 && header.depth != MILLRACE_DEPTH_8 && header.depth != MILLRACE_DEPTH_16 &&
      header.depth != MILLRACE_DEPTH_FLOAT)
    throw Defect(fmt::format("header() says depth {}: 8, 16 and 32 are possible", header.depth));
  return outcome;
}

/// Decodes the region [0, width) x [0, height) of the scaled image into guarded rows; `request`
/// describes the whole image.
Outcome decode(const millrace_unit& unit, const Context& context, const Guarded& bytes,
               const millrace_decode& request, const Placement& placement) {
  const std::size_t value = std::max<std::uint32_t>(request.depth, MILLRACE_DEPTH_8) / 8;
  const auto width =
      static_cast<std::size_t>(request.region.x1 - request.region.x0) * request.channels * value;
  const auto height = static_cast<std::size_t>(request.region.y1 - request.region.y0);
  const std::size_t row = width + static_cast<std::size_t>(placement.row_padding);
  Guarded pixels("the pixels", row * (height - 1) + width, placement.near, placement.fill);
  plugins::CallContext call;
  Outcome outcome = watched_call(call, [&] {
    return unit.decoder->decode(context.get(), bytes.data(), bytes.size(), &request, pixels.data(),
                                row, &call.call);
  });
  pixels.check();
  for (std::size_t y = 0; y < height; ++y) {
    const std::uint8_t* begin = pixels.data() + y * row;
    if (outcome.status == MILLRACE_OK)
      outcome.bytes.insert(outcome.bytes.end(), begin, begin + width);
    if (y + 1 < height &&
        std::any_of(begin + width, begin + row, [&](auto b) { return b != placement.fill; }))
      throw Defect(fmt::format("it writes past the end of row {}", y));
  }
  return outcome;
}

/// Returns the sides at 1 / 2^scale, rounded up.
millrace_decode whole(const millrace_image_header& header, std::uint32_t channels,
                      std::uint32_t scale = 0) {
  const auto side = [scale](std::uint32_t n) {
    return static_cast<std::int32_t>((n + (1u << scale) - 1) >> scale);
  };
  return {
      sizeof(millrace_decode), channels, scale, {0, 0, side(header.width), side(header.height)}};
}

/// Returns the request of the whole image as it is stored, if that is another depth than 8 bits or
/// neither gray nor RGB.
std::optional<millrace_decode> as_stored(const millrace_image_header& header) {
  const std::uint32_t bands = header.bands > 0 ? header.bands : header.channels;
  if (header.depth <= MILLRACE_DEPTH_8 && (bands == 1 || bands == 3)) return std::nullopt;
  if (bands > kMaxChannels) return std::nullopt;  // refused by the host
  millrace_decode request = whole(header, bands);
  request.depth = header.depth;
  return request;
}

/// Decodes header and pixels of arbitrary bytes.
Outcome try_bytes(const millrace_unit& unit, const Context& context, const Bytes& bytes,
                  std::uint32_t channels, const Placement& placement) {
  const auto memory = lend(bytes);
  millrace_image_header header{};
  Outcome outcome = read_header(unit, context, *memory, header);
  const std::uint64_t pixels = std::uint64_t{header.width} * header.height;
  if (outcome.status != MILLRACE_OK || pixels == 0 || pixels > kPixelLimit) return outcome;
  outcome = decode(unit, context, *memory, whole(header, channels), placement);
  const auto request = as_stored(header);
  if (!request || pixels * request->channels > kPixelLimit) return outcome;
  const Outcome stored = decode(unit, context, *memory, *request, placement);
  outcome.bytes.insert(outcome.bytes.end(), stored.bytes.begin(), stored.bytes.end());
  return outcome;
}

/// Skips samples of other decoders of the same plugin.
void expect_taken(const millrace_unit& unit, const Bytes& sample) {
  if (unit.decoder->sniff(sample.data(), std::min<std::size_t>(sample.size(), 64)) != 1)
    throw Skip("the sample is not of this format");
}

std::string try_sniff(const millrace_unit& unit) {
  int taken = 0;
  constexpr int kTries = 64;
  for (int seed = 0; seed < kTries; ++seed) {
    for (std::size_t size = 0; size <= 64; size += seed == 0 ? 1 : 32) {
      Bytes bytes(size);
      for (std::size_t i = 0; i < size; ++i)
        bytes[i] = seed == 0 ? 0 : noise(static_cast<std::uint64_t>(seed), i);
      const auto memory = lend(bytes);
      plugins::CallContext call;
      int answer = 0;
      watched_call(call, [&] {
        answer = unit.decoder->sniff(memory->data(), size);
        return MILLRACE_OK;
      });
      if (answer != 0 && answer != 1)
        throw Defect(fmt::format("sniff() answers {} instead of 0 or 1", answer));
      if (answer == 1 && size == 0) throw Defect("sniff() takes an empty file");
      taken += answer;
    }
  }
  if (taken > 1)
    throw Defect(
        fmt::format("sniff() accepts meaningless bytes, {} times: it would be given "
                    "other formats' images",
                    taken));
  return "empty, zeros and noise of 0 to 64 bytes";
}

std::string try_noise(const millrace_unit& unit, const Bytes& sample) {
  const Context context(unit);
  std::size_t tries = 0;
  for (std::uint64_t seed = 0; seed < 64; ++seed)
    for (const std::size_t size : {0, 1, 7, 33, 500}) {
      Bytes bytes(size);
      for (std::size_t i = 0; i < size; ++i) {
        const bool real = seed % 2 == 1 && i < std::min<std::size_t>(sample.size(), 16);
        bytes[i] = real ? sample[i] : noise(seed, i);
      }
      try_bytes(unit, context, bytes, seed % 4 < 2 ? 1 : 3, {});
      ++tries;
    }
  return fmt::format("{} meaningless headers", tries);
}

std::string try_sample(const millrace_unit& unit, const Bytes& sample) {
  expect_taken(unit, sample);
  const Context context(unit);
  const auto memory = lend(sample);
  millrace_image_header header{};
  const Outcome read = read_header(unit, context, *memory, header);
  if (read.status != MILLRACE_OK) throw Defect(fmt::format("header() fails: {}", read.error));
  std::size_t regions = 0;
  for (const std::uint32_t channels : {1u, 3u}) {
    const auto must = [&](const millrace_decode& request, const Placement& placement) {
      // header() precedes every decode(), because it may have stored something for it.
      read_header(unit, context, *memory, header);
      Outcome outcome = decode(unit, context, *memory, request, placement);
      if (outcome.status != MILLRACE_OK)
        throw Defect(fmt::format("decode() to {} channels at 1/{} fails: {}", channels,
                                 1 << request.scale, outcome.error));
      return outcome;
    };
    for (std::uint32_t scale = 0; scale < 4; ++scale) {
      if (scale > 0 && (header.scales >> scale & 1) == 0) continue;
      const millrace_decode all = whole(header, channels, scale);
      const Outcome full = must(all, {});
      if (!must(all, {Guarded::Near::before, 7, 0xFF}).same_as(full))
        throw Defect("the pixels depend on where memory lies, or not all are written");
      if (unit.decoder->region == nullptr) continue;
      const std::int32_t width = all.region.x1;
      const std::int32_t height = all.region.y1;
      for (std::uint64_t seed = 0; seed < 16; ++seed) {
        const auto between = [&](std::uint64_t n, std::int32_t low, std::int32_t high) {
          return low + static_cast<std::int32_t>(base::mix64(seed * 8 + n) %
                                                 static_cast<std::uint64_t>(high - low));
        };
        millrace_decode part = all;
        part.region.x0 = between(0, 0, width);
        part.region.y0 = between(1, 0, height);
        part.region.x1 = between(2, part.region.x0, width) + 1;
        part.region.y1 = between(3, part.region.y0, height) + 1;
        const millrace_rect asked = part.region;
        read_header(unit, context, *memory, header);
        unit.decoder->region(context.get(), &part);
        const millrace_rect& r = part.region;
        if (r.x0 > asked.x0 || r.y0 > asked.y0 || r.x1 < asked.x1 || r.y1 < asked.y1 || r.x0 < 0 ||
            r.y0 < 0 || r.x1 > width || r.y1 > height)
          throw Defect("region() narrows the region, or leaves the image");
        const Outcome got = decode(unit, context, *memory, part, {});
        const std::size_t row = static_cast<std::size_t>(width) * channels;
        const std::size_t bytes = static_cast<std::size_t>(r.x1 - r.x0) * channels;
        for (std::int32_t y = r.y0; y < r.y1 && got.status == MILLRACE_OK; ++y)
          if (std::memcmp(got.bytes.data() + static_cast<std::size_t>(y - r.y0) * bytes,
                          full.bytes.data() + static_cast<std::size_t>(y) * row +
                              static_cast<std::size_t>(r.x0) * channels,
                          bytes) != 0)
            throw Defect(
                fmt::format("a region's pixels differ from the whole image's in row {}", y));
        ++regions;
      }
    }
  }
  return fmt::format("{}x{}, gray and RGB{}", header.width, header.height,
                     regions > 0 ? fmt::format(", {} regions", regions) : "");
}

std::string try_damage(const millrace_unit& unit, const Bytes& sample) {
  expect_taken(unit, sample);
  const Context context(unit);
  constexpr std::size_t kTries = 200;
  std::size_t refused = 0;
  for (std::size_t i = 0; i < kTries; ++i) {  // near the start, byte by byte
    const std::size_t size = i < 64 ? i : sample.size() * (i - 63) / (kTries - 62);
    if (size >= sample.size()) continue;
    const Bytes cut(sample.begin(), sample.begin() + static_cast<std::ptrdiff_t>(size));
    refused += try_bytes(unit, context, cut, 3, {}).status != MILLRACE_OK;
  }
  std::size_t mutants = 0;
  for (std::uint64_t seed = 0; seed < kTries; ++seed, ++mutants) {
    Bytes bytes = sample;
    for (std::uint64_t n = 0; n < 1 + seed % 4; ++n) {
      const std::uint64_t random = base::mix64(seed * 16 + n);
      const std::size_t within =
          seed % 2 == 0 ? std::min<std::size_t>(64, bytes.size()) : bytes.size();
      bytes[random % within] = static_cast<std::uint8_t>(random >> 32);
    }
    try_bytes(unit, context, bytes, seed % 3 == 0 ? 1 : 3, {});
  }
  return fmt::format("truncated ({} rejected), damaged {} times", refused, mutants);
}

}  // namespace

void add_decoder_steps(std::vector<Step>& steps, const millrace_unit& unit,
                       const CheckOptions& options,
                       const std::function<void(const CheckCost&)>& cost) {
  auto sample = std::make_shared<Bytes>();
  if (!options.sample.empty()) {
    const pipeline::MappedFile file = pipeline::MappedFile::map(options.sample);
    sample->assign(file.bytes().begin(), file.bytes().end());
  }
  const auto with_sample = [sample](const std::function<std::string()>& run) {
    if (sample->empty()) throw Skip("give an image of this format: --sample FILE");
    return run();
  };
  steps.push_back({unit.name, "sniff", [&unit] { return try_sniff(unit); }});
  steps.push_back({unit.name, "noise", [&unit, sample] { return try_noise(unit, *sample); }});
  steps.push_back({unit.name, "image", [&unit, sample, with_sample] {
                     return with_sample([&] { return try_sample(unit, *sample); });
                   }});
  steps.push_back({unit.name, "damage", [&unit, sample, with_sample] {
                     return with_sample([&] { return try_damage(unit, *sample); });
                   }});
  if (sample->empty()) return;
  const auto open = [&unit, sample]() -> Session {
    expect_taken(unit, *sample);
    return [&unit, sample, context = std::make_shared<Context>(unit)](const Input& input,
                                                                      const Placement& placement) {
      Bytes bytes = *sample;  // the first one intact, the others damaged
      if (input.seed > 0)
        bytes[bytes.size() * input.seed / 8 % bytes.size()] ^=
            static_cast<std::uint8_t>(input.seed);
      return try_bytes(unit, *context, bytes, static_cast<std::uint32_t>(input.channels),
                       placement);
    };
  };
  Subject subject{unit, open, [&unit] { const Context once(unit); }, {}, {}};
  for (std::uint64_t seed = 8; seed-- > 0;)
    subject.inputs.push_back({{0, 0}, seed % 2 == 0 ? 3 : 1, seed});
  subject.costs = {{{0, 0}, 3, 0}};
  add_common_steps(steps, std::make_shared<Subject>(std::move(subject)), options, cost);
}

// Probes readers with a missing data set and with a valid one.

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
