// Helpers for a plugin's own tests, without the host and without structures of the C interface:
//
//   millrace::testing::Unit<Dim> dim("least=0.5");                      parameters as in a recipe
//   const auto out = dim.apply({{2, 1}, 1, {200, 0}}, /*sample=*/7);    a gray image of 2x1 pixels
//   if (out.levels[0] > 200 || dim.drawn("factor") > 1) return 1;
//
// Parameters are name=value, separated by commas without spaces: "p=0.5,fill=[1,2,3]". A comma in
// brackets or braces separates numbers of a list, or parameters of a choice's child.
//
// A Unit calls its class through the tables that the host calls, checks parameters against their
// declarations as the host does, and throws BadUse and BadData as the class threw them. Draws
// depend on the number of the sample: equal numbers give equal draws. `millrace plugins check`
// tests what a plugin's author did not think of; these helpers are for what the unit is meant to
// do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millrace/millrace.hpp"

namespace millrace::testing {
inline namespace plugin_v1 {

/// An image that owns its pixels: interleaved, row by row, without gaps.
struct Picture {
  Size size;
  int channels = 1;
  std::vector<std::uint8_t> levels;

  /// Makes a black image.
  Picture(Size pixels, int channel_count)
      : size(pixels),
        channels(channel_count),
        levels(static_cast<std::size_t>(pixels.width) * static_cast<std::size_t>(pixels.height) *
               static_cast<std::size_t>(channel_count)) {}
  /// Makes an image of these levels. Throws BadUse if their number is not that of the image.
  Picture(Size pixels, int channel_count, std::vector<std::uint8_t> given)
      : Picture(pixels, channel_count) {
    if (given.size() != levels.size())
      throw BadUse("a picture of " + std::to_string(levels.size()) + " levels is given " +
                   std::to_string(given.size()));
    levels = std::move(given);
  }

  std::uint8_t& at(int x, int y, int channel = 0) { return levels[place(x, y, channel)]; }
  std::uint8_t at(int x, int y, int channel = 0) const { return levels[place(x, y, channel)]; }
  Image image() {
    return {levels.data(), size.width, size.height, channels,
            static_cast<std::ptrdiff_t>(size.width) * channels};
  }
  bool operator==(const Picture& other) const {
    return size == other.size && channels == other.channels && levels == other.levels;
  }

 private:
  std::size_t place(int x, int y, int channel) const {
    return static_cast<std::size_t>((y * size.width + x) * channels + channel);
  }
};

/// Two samples of a batch in single precision, channel after channel, and the probabilities of
/// their labels.
struct Samples {
  Size size;
  int channels = 1;
  std::vector<float> first, second;
  std::vector<float> first_labels, second_labels;
};

/// Samples of a batch in single precision, channel after channel, and the probabilities of their
/// labels: one vector per sample in each list.
struct BatchSamples {
  Size size;
  int channels = 1;
  std::vector<std::vector<float>> samples;
  std::vector<std::vector<float>> labels;
};

namespace detail {

/// The values of a unit's parameters, parsed and checked. Holds what millrace_value points to.
class ParsedValues {
 public:
  ParsedValues(const millrace_unit& unit, const std::string& parameters) {
    const std::map<std::string, std::string> given = split(unit, parameters);
    for (std::size_t i = 0; i < unit.param_count; ++i) {
      const auto at = given.find(unit.params[i].name);
      texts_.push_back(at != given.end() ? at->second : unit.params[i].fallback);
    }
    numbers_.resize(texts_.size());
    for (std::size_t i = 0; i < texts_.size(); ++i)
      values_.push_back(parse(unit.params[i], texts_[i], numbers_[i]));
  }
  const std::vector<millrace_value>& all() const { return values_; }

 private:
  /// Splits "p=0.5,fill=[1,2,3]" into names and texts. Throws BadUse for an undeclared name.
  static std::map<std::string, std::string> split(const millrace_unit& unit,
                                                  const std::string& parameters) {
    std::map<std::string, std::string> given;
    for (std::size_t begin = 0; begin < parameters.size();) {
      std::size_t end = begin;
      for (int depth = 0; end < parameters.size() && (depth > 0 || parameters[end] != ','); ++end)
        depth += std::strchr("[{", parameters[end]) != nullptr   ? 1
                 : std::strchr("]}", parameters[end]) != nullptr ? -1
                                                                 : 0;
      const std::string one = parameters.substr(begin, end - begin);
      const std::size_t equals = one.find('=');
      if (equals == std::string::npos)
        throw BadUse("'" + one + "' is not of the form name=value",
                     "separate parameters with commas: \"p=0.5,fill=[1,2,3]\"");
      const std::string name = one.substr(0, equals);
      require_declared(unit, name);
      given[name] = one.substr(equals + 1);
      begin = end + 1;
    }
    return given;
  }

  static void require_declared(const millrace_unit& unit, const std::string& name) {
    for (std::size_t i = 0; i < unit.param_count; ++i)
      if (name == unit.params[i].name) return;
    throw BadUse(std::string(unit.name) + " has no parameter '" + name + "'");
  }

  [[noreturn]] static void refuse(const Parameter& param, const std::string& text,
                                  const char* why) {
    throw BadUse(std::string(param.name) + "=" + text + ": " + why);
  }

  /// Parses numbers separated by commas, with or without brackets around them.
  static std::vector<double> numbers_in(const Parameter& param, const std::string& text) {
    std::vector<double> numbers;
    const bool whole = param.type == MILLRACE_INTEGER || param.type == MILLRACE_INTEGERS;
    for (const char* at = text.c_str(); *at != '\0';) {
      if (std::strchr("[], ", *at) != nullptr) {
        ++at;
        continue;
      }
      char* end = nullptr;
      const double number = std::strtod(at, &end);
      if (end == at) refuse(param, text, "not a number");
      if (!(number >= param.min && number <= param.max)) refuse(param, text, "out of its range");
      if (whole && number != static_cast<double>(static_cast<std::int64_t>(number)))
        refuse(param, text, "not a whole number");
      numbers.push_back(number);
      at = end;
    }
    return numbers;
  }

  static millrace_value parse(const Parameter& param, const std::string& text,
                              std::vector<double>& numbers) {
    millrace_value value{};
    value.text = text.c_str();
    switch (param.type) {
      case MILLRACE_TEXT:
        break;
      case MILLRACE_BOOLEAN:
        if (text != "true" && text != "false") refuse(param, text, "neither true nor false");
        value.integer = text == "true" ? 1 : 0;
        break;
      case MILLRACE_CHOICE:
        value.integer = choice_of(param, text);
        break;
      default:
        numbers = numbers_in(param, text);
        value.numbers = numbers.data();
        value.count = numbers.size();
        check_count(param, text, numbers.size());
        if (param.type != MILLRACE_NUMBER && param.type != MILLRACE_INTEGER) break;
        value.number = numbers.front();
        value.integer = static_cast<std::int64_t>(numbers.front());
    }
    return value;
  }

  static void check_count(const Parameter& param, const std::string& text, std::size_t count) {
    const bool is_list = param.type == MILLRACE_NUMBERS || param.type == MILLRACE_INTEGERS;
    const bool fits = !is_list             ? count == 1
                      : param.lengths == 0 ? true
                                           : count < 32 && (param.lengths >> count & 1) != 0;
    if (!fits) refuse(param, text, "not as many numbers as it takes");
  }

  static std::int64_t choice_of(const Parameter& param, const std::string& text) {
    std::int64_t index = 0;
    for (std::string_view rest(param.choices);; ++index) {
      const std::size_t bar = rest.find('|');
      if (rest.substr(0, bar) == text) return index;
      if (bar == std::string_view::npos) break;
      rest.remove_prefix(bar + 1);
    }
    refuse(param, text, "none of its choices");
  }

  std::vector<std::string> texts_;
  std::vector<std::vector<double>> numbers_;
  std::vector<millrace_value> values_;
};

}  // namespace detail

/// One instance of a class, called as the host calls it.
template <class T>
class Unit {
 public:
  /// Makes the instance. `parameters` are separated by commas, "p=0.5,fill=[1,2,3]"; those that are
  /// not given have their defaults. `path` and `split` are a reader's data.path and data.split.
  /// Throws BadUse and BadData.
  explicit Unit(const std::string& parameters = {}, const std::string& path = {},
                const std::string& split = "train") {
    const detail::ParsedValues values(kTable, parameters);
    millrace_create create{};
    create.struct_size = sizeof create;
    create.host = this;
    create.values = values.all().data();
    create.value_count = values.all().size();
    create.error = error_;
    create.error_size = sizeof error_;
    create.child = &add_child;
    create.path = path.c_str();
    create.split = split.c_str();
    check(kTable.create(&create, &self_));
    call_.struct_size = sizeof call_;
    call_.host = this;
    call_.error = error_;
    call_.error_size = sizeof error_;
    call_.report = &take_report;
    call_.memory = &lend_memory;
  }
  ~Unit() { kTable.destroy(self_); }
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  /// The instance itself.
  const T& operator*() const { return *static_cast<const T*>(self_); }
  const T* operator->() const { return static_cast<const T*>(self_); }

  /// Geometric units: returns the map for an image of this size.
  Warp warp(Size input, std::uint64_t sample = 0) {
    static_assert(millrace::detail::Geometric<T>, "warp() is for geometric units");
    start(sample);
    Warp warp{};
    check(kTable.geometric->warp(self_, input, &warp, &call_));
    return warp;
  }

  /// Pixel units and filters: returns the image that they make of this one.
  Picture apply(Picture picture, std::uint64_t sample = 0) {
    static_assert(millrace::detail::AppliesInPlace<T> || millrace::detail::SetsLevels<T> ||
                      millrace::detail::Filters<T>,
                  "apply() is for pixel units and filters");
    start(sample);
    if constexpr (millrace::detail::Filters<T>) {
      Size output = picture.size;
      if (kTable.filter->output != nullptr)
        check(kTable.filter->output(self_, picture.size, &output, &call_));
      Picture result(output, picture.channels);
      const auto scratch = lend_scratch(kTable.filter->scratch, picture);
      const Image from = picture.image(), to = result.image();
      check(kTable.filter->apply(self_, &from, &to, &call_));
      return result;
    } else if constexpr (millrace::detail::SetsLevels<T>) {
      std::uint8_t levels[3][256];
      for (auto& table : levels)
        for (int level = 0; level < 256; ++level) table[level] = static_cast<std::uint8_t>(level);
      check(kTable.pixel->levels(self_, levels, picture.channels, &call_));
      for (std::size_t i = 0; i < picture.levels.size(); ++i)
        picture.levels[i] =
            levels[i % static_cast<std::size_t>(picture.channels)][picture.levels[i]];
      return picture;
    } else {
      const auto scratch = lend_scratch(kTable.pixel->scratch, picture);
      const Image image = picture.image();
      check(kTable.pixel->apply(self_, &image, &call_));
      return picture;
    }
  }

  /// Choices: returns what a sample gets, as the class wrote it for Children::add().
  std::vector<std::string> choose(std::uint64_t sample = 0) {
    static_assert(millrace::detail::Chooses<T>, "choose() is for choices");
    start(sample);
    std::uint32_t places[MILLRACE_MOST_CHOSEN];
    std::size_t count = 0;
    check(kTable.choice->choose(self_, places, &count, &call_));
    std::vector<std::string> chosen;
    for (std::size_t i = 0; i < count; ++i) chosen.push_back(children_.at(places[i]));
    return chosen;
  }

  /// Batch units: changes two samples and their labels.
  void pair(Samples& samples, std::uint64_t sample = 0) {
    static_assert(millrace::detail::Pairs<T>, "pair() is for batch units");
    start(sample);
    millrace_sample form{};
    form.struct_size = sizeof form;
    form.size = samples.size;
    form.channels = samples.channels;
    form.dtype = MILLRACE_F32;
    form.layout = MILLRACE_CHW;
    form.classes = static_cast<std::int32_t>(samples.first_labels.size());
    check(kTable.batch->pair(self_, &form, samples.first.data(), samples.second.data(),
                             samples.first_labels.data(), samples.second_labels.data(), &call_));
  }

  /// Batch units with kGroup: changes all whole groups of a batch and their labels, as the host
  /// does; the last samples, too few for a group, stay as they are. The draws of a group depend on
  /// `sample` plus the position of its first one. Throws BadUse for lists of unequal length.
  void mix(BatchSamples& batch, std::uint64_t sample = 0) {
    static_assert(millrace::detail::Mixes<T>, "mix() is for batch units with a kGroup");
    const std::size_t count = batch.samples.size();
    if (batch.labels.size() != count) throw BadUse("a batch has labels for each of its samples");
    const millrace_batch& functions = *kTable.batch;
    const std::size_t group = functions.group == MILLRACE_WHOLE_BATCH
                                  ? std::max<std::size_t>(count, 2)
                                  : static_cast<std::size_t>(functions.group);
    millrace_sample form{};
    form.struct_size = sizeof form;
    form.size = batch.size;
    form.channels = batch.channels;
    form.dtype = MILLRACE_F32;
    form.layout = MILLRACE_CHW;
    for (std::size_t first = 0; first + group <= count; first += group) {
      std::vector<void*> samples;
      std::vector<float*> labels;
      for (std::size_t i = first; i < first + group; ++i) {
        if (batch.labels[i].size() != batch.labels.front().size() ||
            batch.samples[i].size() != batch.samples.front().size())
          throw BadUse("the samples of a batch are of equal size, and so are their labels");
        samples.push_back(batch.samples[i].data());
        labels.push_back(batch.labels[i].data());
      }
      form.classes = static_cast<std::int32_t>(batch.labels.front().size());
      start(sample + first);
      check(functions.mix(self_, &form, samples.data(), labels.data(), group, &call_));
    }
  }

  /// Readers: lends a sample's bytes, which are valid until the next call.
  millrace_bytes borrow(std::uint64_t index) {
    static_assert(millrace::detail::Reads<T>, "borrow() is for readers");
    start(index);
    millrace_bytes bytes{};
    check(kTable.reader->borrow(self_, index, &bytes, &call_));
    return bytes;
  }

  /// Returns the value that the last call reported under a name. Throws BadUse if it did not.
  double drawn(const std::string& name) const {
    const auto at = drawn_.find(name);
    if (at == drawn_.end()) throw BadUse("the last call reported no '" + name + "'");
    return at->second;
  }

 private:
  static constexpr const millrace_unit& kTable = kUnit<T>;

  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  using Memory = std::unique_ptr<void, Free>;

  void start(std::uint64_t sample) {
    drawn_.clear();
    error_[0] = '\0';
    call_.rng = {{1, 0},
                 {static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32)},
                 {},
                 4};
  }

  Memory lend_scratch(std::size_t (*scratch)(const void*, Size, std::int32_t),
                      const Picture& picture) {
    call_.scratch = nullptr;
    call_.scratch_size = scratch == nullptr ? 0 : scratch(self_, picture.size, picture.channels);
    if (call_.scratch_size == 0) return {};
    Memory memory(std::aligned_alloc(64, (call_.scratch_size + 63) / 64 * 64));
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory.get(), 0xA5, call_.scratch_size);  // its contents are undefined
    call_.scratch = memory.get();
    return memory;
  }

  void check(millrace_status status) const {
    if (status == MILLRACE_OK) return;
    const std::string text = error_;
    const std::size_t line = text.find('\n');
    const std::string hint = line == std::string::npos ? "" : text.substr(line + 1);
    if (status == MILLRACE_BAD_USE) throw BadUse(text.substr(0, line), hint);
    throw BadData(text.substr(0, line), hint);
  }

  static std::int32_t add_child(const millrace_create* create, const char* text) {
    auto& children = static_cast<Unit*>(create->host)->children_;
    children.emplace_back(text);
    return static_cast<std::int32_t>(children.size() - 1);
  }
  static void take_report(millrace_call* call, const char* name, double value) {
    static_cast<Unit*>(call->host)->drawn_[name] = value;
  }
  static std::uint8_t* lend_memory(millrace_call* call, std::size_t size) {
    auto& memory = static_cast<Unit*>(call->host)->memory_;
    memory.resize(size);
    return memory.data();
  }

  void* self_ = nullptr;
  millrace_call call_{};
  char error_[512] = {};
  std::map<std::string, double> drawn_;
  std::vector<std::string> children_;
  std::vector<std::uint8_t> memory_;
};

/// Decodes a whole image with a decoder class, as gray (1 channel) or RGB (3). Throws BadData.
template <class T>
Picture decoded(const std::vector<std::uint8_t>& bytes, int channels = 3) {
  T decoder;
  const millrace_image_header header = decoder.header(bytes.data(), bytes.size());
  const auto width = static_cast<std::int32_t>(header.width);
  const auto height = static_cast<std::int32_t>(header.height);
  Picture picture({width, height}, channels);
  const millrace_decode request{
      sizeof(millrace_decode), static_cast<std::uint32_t>(channels), 0, {0, 0, width, height}};
  decoder.decode(bytes.data(), bytes.size(), request, picture.levels.data(),
                 header.width * static_cast<std::size_t>(channels));
  return picture;
}

}  // namespace plugin_v1
}  // namespace millrace::testing
