// Calls one augmentation through its table, as the host does.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "plugins/host/registry.h"
#include "plugins/host/unit.h"

namespace millrace::augment {

struct Picture {
  Size size;
  int channels;
  std::vector<std::uint8_t> levels;

  Picture(Size s, int c)
      : size(s), channels(c), levels(static_cast<std::size_t>(s.width * s.height * c)) {}
  Image image() {
    return {levels.data(), size.width, size.height, channels,
            static_cast<std::ptrdiff_t>(size.width) * channels};
  }
  std::uint8_t& at(int x, int y, int c) {
    return levels[static_cast<std::size_t>((y * size.width + x) * channels + c)];
  }
};

/// Equals picture() of tests/golden/make_pixel.py.
inline Picture golden_picture(const std::string& kind, int channels, Size size) {
  Picture picture(size, channels);
  for (int y = 0; y < size.height; ++y)
    for (int x = 0; x < size.width; ++x)
      for (int c = 0; c < channels; ++c) {
        int level = 77 + c;
        if (kind == "smooth")
          level = x * 7 + y * 11 + c * 40 + (x / 9 + y / 6) % 2 * 60;
        else if (kind == "rough")
          level =
              x * x * 31 + y * y * 17 + x * y * 13 + c * 101 + (x * 5 + y * 3) % 11 * (c + 1) * 23;
        else if (kind == "dull")
          level = 90 + (x * 3 + y * 5 + c * 7) % 32;
        picture.at(x, y, c) = static_cast<std::uint8_t>(level);
      }
  return picture;
}

inline Picture noise_picture(Size size, int channels, std::uint64_t seed) {
  Picture picture(size, channels);
  Draw draw(base::stream({seed, 0, 0}, base::op_id("noise")));
  for (auto& level : picture.levels) level = static_cast<std::uint8_t>(draw.bits());
  return picture;
}

/// A unit written as in a recipe, and the values that its calls report.
class OneUnit {
  using Drawn = std::map<std::string, double, std::less<>>;

 public:
  explicit OneUnit(const std::string& text, const std::vector<double>& mean = {},
                   const std::vector<double>& std = {}) {
    Recipe recipe(op_declarations());
    recipe.set("augment+=" + text);
    const OpSpec& spec = recipe.augment().front();
    unit_ = std::make_unique<plugins::Unit>(plugins::augmentation(spec.op), spec.params, "", "",
                                            mean, std);
    context_.call.host = &drawn_;
    context_.call.report = [](millrace_call* call, const char* name, double value) {
      auto& drawn = *static_cast<Drawn*>(call->host);
      if (const auto at = drawn.find(std::string_view(name)); at != drawn.end())
        at->second = value;
      else
        drawn.emplace(name, value);
    };
  }

  /// Runs a pixel unit in place, or a filter and takes its result.
  void apply(Picture& picture, std::uint64_t sample = 0) {
    prepare(picture);
    Picture out = picture;
    call(picture, out, sample);
    if (unit_->table().filter != nullptr) picture.levels.swap(out.levels);
  }

  /// Runs the unit on the upper left part of a picture.
  void apply_to_part(Picture& picture, Size part) {
    prepare(picture);
    start(0);
    Image image = picture.image();
    image.width = part.width;
    image.height = part.height;
    plugins::checked_call(unit_->table(), context_.call, [&] {
      return unit_->table().pixel->apply(unit_->self(), &image, &context_.call);
    });
  }

  /// Allocates scratch of exactly the requested size, for call().
  void prepare(const Picture& picture) {
    const millrace_unit& table = unit_->table();
    const auto scratch = table.pixel != nullptr ? table.pixel->scratch : table.filter->scratch;
    const std::size_t bytes =
        scratch == nullptr ? 0 : scratch(unit_->self(), picture.size, picture.channels);
    scratch_.reset(std::aligned_alloc(64, (bytes + 64) / 64 * 64));
    context_.call.scratch = scratch_.get();
    context_.call.scratch_size = bytes;
  }

  /// Makes only the call itself; a filter writes `out`.
  void call(Picture& picture, Picture& out, std::uint64_t sample) {
    start(sample);
    const millrace_unit& table = unit_->table();
    const Image image = picture.image(), to = out.image();
    plugins::checked_call(table, context_.call, [&] {
      if (table.filter != nullptr)
        return table.filter->apply(unit_->self(), &image, &to, &context_.call);
      if (table.pixel->apply != nullptr)
        return table.pixel->apply(unit_->self(), &image, &context_.call);
      std::uint8_t levels[3][256];
      for (auto& channel : levels)
        for (int level = 0; level < 256; ++level) channel[level] = static_cast<std::uint8_t>(level);
      const millrace_status status =
          table.pixel->levels(unit_->self(), levels, picture.channels, &context_.call);
      for (std::size_t i = 0; i < picture.levels.size(); ++i)
        picture.levels[i] =
            levels[i % static_cast<std::size_t>(picture.channels)][picture.levels[i]];
      return status;
    });
  }

  /// Returns the children that a choice gives a sample.
  std::vector<const plugins::Unit*> choose(std::uint64_t sample) {
    start(sample);
    std::uint32_t places[MILLRACE_MOST_CHOSEN];
    std::size_t count = 0;
    plugins::checked_call(unit_->table(), context_.call, [&] {
      return unit_->table().choice->choose(unit_->self(), places, &count, &context_.call);
    });
    std::vector<const plugins::Unit*> chosen;
    for (std::size_t i = 0; i < count; ++i) chosen.push_back(unit_->children()[places[i]].get());
    return chosen;
  }

  void choose_only(std::uint64_t sample) {
    start(sample);
    std::uint32_t places[MILLRACE_MOST_CHOSEN];
    std::size_t count = 0;
    plugins::checked_call(unit_->table(), context_.call, [&] {
      return unit_->table().choice->choose(unit_->self(), places, &count, &context_.call);
    });
  }

  void pair(const millrace_sample& sample, void* first, void* second, std::vector<float>& labels_1,
            std::vector<float>& labels_2, std::uint64_t place = 0) {
    start(place);
    plugins::checked_call(unit_->table(), context_.call, [&] {
      return unit_->table().batch->pair(unit_->self(), &sample, first, second, labels_1.data(),
                                        labels_2.data(), &context_.call);
    });
  }

  plugins::Unit& unit() { return *unit_; }
  /// Returns the last value reported under a name.
  double drawn(const std::string& name) const { return drawn_.at(name); }
  bool has_drawn(const std::string& name) const { return drawn_.count(name) != 0; }
  void forget() { drawn_.clear(); }
  /// Stops reports, which allocate here.
  void silence() { context_.call.report = nullptr; }

 private:
  void start(std::uint64_t sample) {
    context_.call.rng = base::stream({1, 0, sample}, base::op_id(unit_->table().name));
  }

  std::unique_ptr<plugins::Unit> unit_;
  plugins::CallContext context_;
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> scratch_;
  Drawn drawn_;
};

}  // namespace millrace::augment
