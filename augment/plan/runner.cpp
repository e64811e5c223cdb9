// Runs the steps of a plan on one image.
#include "augment/plan/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "augment/plan/border.h"
#include "base/clock.h"
#include "base/rng.h"
#include "millrace/error.h"
#include "millrace/limits.h"

namespace millrace::augment {
namespace {

/// Rejects a warp of a plugin that leads out of the image's memory (plugin-safety contract).
void check_warp(const plugins::Unit& unit, Size input, const millrace_warp& warp) {
  const Rect& w = warp.window;
  bool sound = w.x0 >= 0 && w.y0 >= 0 && w.x0 < w.x1 && w.y0 < w.y1 && w.x1 <= input.width &&
               w.y1 <= input.height;
  for (const double value : warp.map) sound = sound && std::abs(value) < 1e15;  // rejects NaN too
  if (!sound)
    throw DataError(
        fmt::format("{}: a warp whose window lies outside the {}x{} image, or whose map "
                    "is no number",
                    unit.table().name, input.width, input.height),
        "report it to the plugin's author");
}

const char* const kFilterNames[] = {"moved", "nearest", "bilinear", "reduced"};

}  // namespace

void PlanScratch::trim(std::size_t most) {
  for (Buffer* buffer :
       {&pixels[0], &pixels[1], &op, &resample.tile, &resample.positions, &resample.taps,
        &resample.windows, &resample.rows, &resample.packed, &resample.turned, &floats.source,
        &floats.taps, &floats.rows, &floats.reduced})
    if (buffer->capacity() > most) *buffer = Buffer();
}

Size output_of(const plugins::Unit& unit, Size input, millrace_call& call) {
  Size output = input;
  const auto ask = [&](const auto* functions) {
    if (functions->output == nullptr) return;
    plugins::checked_call(unit.table(), call,
                          [&] { return functions->output(unit.self(), input, &output, &call); });
  };
  if (unit.table().geometric != nullptr) ask(unit.table().geometric);
  if (unit.table().filter != nullptr) ask(unit.table().filter);
  if (output.width < 1 || output.height < 1 || output.width > kMaxImageSide ||
      output.height > kMaxImageSide)
    throw UsageError(
        fmt::format("{}: an image of {}x{} would become one of {}x{}", unit.table().name,
                    input.width, input.height, output.width, output.height),
        fmt::format("sides may be 1 to {} pixels", kMaxImageSide));
  return output;
}

Runner::Runner(const SampleKey& key, PixelSource& source, int channels, bool floats,
               const PlanOptions& options, PlanScratch& scratch, Trace* trace, Trail* trail)
    : key_(key),
      source_(source),
      channels_(channels),
      depth_(floats ? Depth::f32 : Depth::u8),
      options_(options),
      scratch_(scratch),
      trace_(trace),
      trail_(trail),
      call_(scratch.context.call),
      fold_(source.size()) {
  if (trace_ != nullptr) since_ = base::Clock::steady_ns();
}

void Runner::apply(const plugins::Unit& unit, std::uint32_t id, const std::string& name) {
  call_.rng = base::stream(key_, id);
  const DrawListener listener(trace_, name, call_);
  const millrace_unit& table = unit.table();
  if (table.geometric != nullptr) {
    geometric(unit, name);
  } else if (table.pixel != nullptr) {
    pixel(unit, name);
  } else if (table.filter != nullptr) {
    filter(unit, name);
  } else {
    choice(unit, id, name);
  }
}

void Runner::geometric(const plugins::Unit& unit, const std::string& name) {
  const Size input = fold_.output();
  const Size output = output_of(unit, input, call_);  // throws if this image does not fit
  millrace_warp warp;
  plugins::checked_call(unit.table(), call_, [&] {
    return unit.table().geometric->warp(unit.self(), input, &warp, &call_);
  });
  if (!(warp.output == output))
    throw DataError(
        fmt::format("{}: it announced an output of {}x{} and made one of {}x{}", unit.table().name,
                    output.width, output.height, warp.output.width, warp.output.height),
        "report it to the plugin's author");
  check_warp(unit, input, warp);
  if (trail_ != nullptr) trail_->warps.push_back(warp);
  move(warp, name);
}

void Runner::move(const millrace_warp& warp, const std::string& name) {
  const Size output = warp.output;
  const bool alone = options_.resample == Resample::stepwise && !fold_.is_empty();
  if (alone || (has_tables_ && !shows_no_fill(warp))) flush();
  if (warp.interpolation == MILLRACE_INDEX && warp.border != MILLRACE_CONSTANT) {
    flush();
    const ImageView from = in_memory(pixels_, fold_.output());
    std::uint8_t* to = next_buffer(output);
    copy_with_border(from, warp, to);
    continue_with(to, output);
    if (trace_ != nullptr) folded_.push_back(name);
    note("pass", fmt::format("{}x{}, border copied", output.width, output.height));
    return;
  }
  if (!fold_.add(warp)) {
    flush();
    if (!fold_.add(warp))
      throw UsageError(fmt::format("{}: a warp from {}x{} that cannot be carried out", name,
                                   fold_.output().width, fold_.output().height));
  }
  if (trace_ != nullptr) folded_.push_back(name);
}

void Runner::add_levels(const plugins::Unit& unit, const std::string& name) {
  LevelTable* fresh = has_tables_ ? scratch_.fresh : scratch_.tables;
  for (int c = 0; c < channels_; ++c) std::iota(fresh[c].begin(), fresh[c].end(), std::uint8_t{0});
  plugins::checked_call(unit.table(), call_, [&] {
    return unit.table().pixel->levels(unit.self(), reinterpret_cast<std::uint8_t(*)[256]>(fresh),
                                      channels_, &call_);
  });
  if (has_tables_)
    for (int c = 0; c < channels_; ++c)
      for (std::uint8_t& level : scratch_.tables[c]) level = fresh[c][level];
  has_tables_ = true;
  if (trace_ != nullptr) folded_.push_back(name + " (levels)");
}

void Runner::pixel(const plugins::Unit& unit, const std::string& name) {
  const millrace_pixel& functions = *unit.table().pixel;
  if (depth_ == Depth::f32) {
    flush();
    const FloatImage target = float_image();
    plugins::checked_call(unit.table(), call_, [&] {
      return plugins::floats_of(functions)(unit.self(), &target, &call_);
    });
    return note(name, fmt::format("{}x{} in place, floats", target.width, target.height));
  }
  if (functions.levels != nullptr) return add_levels(unit, name);
  flush();
  const Image target = image();
  lend_scratch(unit, functions.scratch);
  plugins::checked_call(unit.table(), call_,
                        [&] { return functions.apply(unit.self(), &target, &call_); });
  note(name, fmt::format("{}x{} in place", target.width, target.height));
}

void Runner::filter(const plugins::Unit& unit, const std::string& name) {
  const millrace_filter& functions = *unit.table().filter;
  flush();
  const Size output = output_of(unit, fold_.output(), call_);
  const Image from = image();
  std::uint8_t* pixels = next_buffer(output);
  const Image to{pixels, output.width, output.height, channels_,
                 static_cast<std::ptrdiff_t>(output.width) * channels_};
  lend_scratch(unit, functions.scratch);
  plugins::checked_call(unit.table(), call_,
                        [&] { return functions.apply(unit.self(), &from, &to, &call_); });
  if (trail_ != nullptr)
    trail_->lost = true;  // a new image: nothing says where its pixels came from
  continue_with(pixels, output);
  note(name, fmt::format("{}x{}, a new image", output.width, output.height));
}

void Runner::choice(const plugins::Unit& unit, std::uint32_t id, const std::string& name) {
  std::uint32_t chosen[MILLRACE_MOST_CHOSEN];
  std::size_t count = 0;
  plugins::checked_call(unit.table(), call_, [&] {
    return unit.table().choice->choose(unit.self(), chosen, &count, &call_);
  });
  if (count > MILLRACE_MOST_CHOSEN)
    throw DataError(
        fmt::format("{}: it chose {} children, more than {}", name, count, MILLRACE_MOST_CHOSEN));
  for (std::size_t i = 0; i < count; ++i) {
    if (chosen[i] >= unit.children().size())
      throw DataError(
          fmt::format("{}: it chose child {} of {}", name, chosen[i], unit.children().size()));
    const plugins::Unit& child = *unit.children()[chosen[i]];
    // A stream of its own, keyed by the parent's id and the position in this choice.
    const auto child_id =
        static_cast<std::uint32_t>(base::mix64(std::uint64_t{id} << 32 | (i + 1)) >> 32);
    if (trace_ == nullptr) {
      apply(child, child_id, name);  // builds no text without a trace
    } else {
      apply(child, child_id, name + "/" + child.table().name);
    }
  }
}

void Runner::flush() {
  if (has_pixels_ && fold_.is_empty() && !has_tables_) return;
  const Pass pass = next_pass();
  std::uint8_t* out = next_buffer(pass.output);
  if (depth_ == Depth::f32)
    resample(pass, reinterpret_cast<float*>(out), scratch_.floats);
  else
    resample(pass, out, scratch_.resample, tables());
  if (trace_ != nullptr) {
    if (fold_.is_empty() && folded_.empty()) folded_.emplace_back("copy");
    note("pass", fmt::format("{}x{}, {}", pass.output.width, pass.output.height,
                             kFilterNames[static_cast<int>(pass.filter)]));
  }
  continue_with(out, pass.output);
}

Pass Runner::next_pass() {
  if (has_pixels_) return fold_.pass(in_memory(pixels_, fold_.source()));
  const Size all = fold_.source();
  int scale = 0;
  if (options_.dct) {
    scale = fold_.max_scale();
    while (scale > 0 && (source_.scales() >> scale & 1) == 0) --scale;
    fold_.shrink_source(scale);
  }
  const Size size = fold_.source();
  const Rect region = options_.region && source_.serves_regions()
                          ? fold_.region()
                          : Rect{0, 0, size.width, size.height};
  ImageView pixels = source_.pixels(region, scale);
  if (depth_ == Depth::f32) pixels = to_floats(pixels, region, scratch_.floats.source);
  Pass pass = fold_.pass(pixels, region);
  if (trace_ != nullptr) {
    const auto ops = std::move(folded_);
    folded_ = {};
    const char* what = source_.serves_regions() ? "decode" : "source";
    const double part = 100.0 * (region.x1 - region.x0) * (region.y1 - region.y0) /
                        (static_cast<double>(size.width) * size.height);
    note(what, fmt::format("{}x{}{}, [{}, {}) x [{}, {}): {:.0f}% of the pixels", all.width,
                           all.height, scale > 0 ? fmt::format(" at 1/{}", 1 << scale) : "",
                           region.x0, region.x1, region.y0, region.y1, part));
    folded_ = ops;
  }
  return pass;
}

std::uint8_t* Runner::next_buffer(Size size) {
  turn_ ^= 1;
  return scratch_.pixels[turn_].reserve(static_cast<std::size_t>(size.width) *
                                        static_cast<std::size_t>(size.height) *
                                        static_cast<std::size_t>(channels_ * bytes_of(depth_)));
}

void Runner::continue_with(std::uint8_t* pixels, Size size) {
  pixels_ = pixels;
  has_pixels_ = true;
  has_tables_ = false;
  fold_ = Fold(size);
}

Image Runner::image() const {
  const Size size = fold_.output();
  return {pixels_, size.width, size.height, channels_,
          static_cast<std::ptrdiff_t>(size.width) * channels_};
}

FloatImage Runner::float_image() const {
  const Size size = fold_.output();
  return {reinterpret_cast<float*>(pixels_), size.width, size.height, channels_,
          static_cast<std::ptrdiff_t>(size.width) * channels_};
}

void Runner::lend_scratch(const plugins::Unit& unit,
                          std::size_t (*bytes)(const void*, millrace_size, std::int32_t)) {
  const std::size_t size = bytes == nullptr ? 0 : plugins::guarded_call(unit.table(), [&] {
    return bytes(unit.self(), fold_.output(), channels_);
  });
  call_.scratch = size > 0 ? scratch_.op.reserve(size) : nullptr;
  call_.scratch_size = size;
}

void Runner::note(const std::string& what, const std::string& detail) {
  if (trace_ == nullptr) return;
  const std::int64_t now = base::Clock::steady_ns();
  trace_->steps.push_back({what, std::move(folded_), detail, now - since_});
  folded_.clear();
  since_ = base::Clock::steady_ns();
}

void Runner::finish(const SampleSpec& spec, const Store& store, std::byte* out) {
  const Pass pass = next_pass();
  if (depth_ == Depth::f32) {
    auto* const floats = reinterpret_cast<float*>(next_buffer(pass.output));
    resample(pass, floats, scratch_.floats);
    store.floats(floats, pass.output, out);
  } else {
    resample(pass, store, out, scratch_.resample, tables());
  }
  if (trace_ != nullptr)
    note("pass", fmt::format("{}x{}, {}, stored as {} {}", pass.output.width, pass.output.height,
                             kFilterNames[static_cast<int>(pass.filter)], name_of(spec.dtype),
                             spec.layout == Layout::chw ? "chw" : "hwc"));
}

}  // namespace millrace::augment
