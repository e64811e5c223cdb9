// One sample's pixels without the loader; inspect runs plans on them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>

#include "augment/plan/plan_setup.h"
#include "millrace/error.h"
#include "millrace/reader.h"
#include "millrace/transform.h"
#include "pipeline/decoders/decoder.h"
#include "pipeline/loader/sampler.h"
#include "pipeline/setup/loader_setup.h"
#include "pipeline/targets/object_list.h"
#include "pipeline/targets/object_masks.h"
#include "pipeline/targets/object_mixing.h"
#include "tools/inspect/sheet.h"
#include "tools/training/setup.h"

namespace millrace::tools {

class SamplePixels final : public PixelSource {
 public:
  /// Reads the sample and, if it is encoded, parses the header. Throws DataError.
  SamplePixels(const Reader& reader, std::uint64_t index, const Transform& plan,
               std::uint64_t max_pixels)
      : channels_(plan.output().channels), depth_(plan.depth()) {
    const DatasetInfo& info = reader.info();
    const Sample sample = reader.read(index, bytes_);
    label_ = sample.label;
    if (info.encoded) {
      decode_.open(sample.bytes, max_pixels);
    } else {
      const std::uint8_t* pixels = sample.bytes.data();
      raw_ = info.planar ? planar(pixels, info.size, info.channels)
                         : interleaved(pixels, info.size, info.channels);
    }
  }

  Size size() const override { return raw_ ? raw_->size() : decode_.image().size; }
  std::uint32_t scales() const override { return raw_ ? 1 : decode_.image().scales; }
  bool serves_regions() const override { return !raw_; }
  ImageView pixels(const Rect& region, int scale) override {
    return raw_ ? *raw_ : decode_.decode(channels_, region, scale, depth_);
  }
  std::int64_t label() const { return label_; }

 private:
  int channels_;
  Depth depth_;
  std::int64_t label_ = 0;
  Buffer bytes_;
  pipeline::DecodeScratch decode_;
  std::optional<ImageView> raw_;
};

namespace {

/// Compiles the chain of evaluation, or that of an epoch of training.
std::shared_ptr<const augment::Plan> plan_of(const Recipe& recipe, std::uint32_t epoch, bool eval,
                                             const Reader& reader) {
  if (eval) return augment::make_plan(recipe, recipe.eval_augment(), reader);
  std::shared_ptr<const augment::Plan> plan = augment::make_training_plan(recipe, reader);
  const augment::Plan& own = plan->at(epoch);
  return {std::move(plan), &own};
}

}  // namespace

// Runs single samples through a recipe's plan.

Inspection::Inspection(Recipe recipe, std::uint32_t epoch, bool eval)
    : recipe_(std::move(recipe)),
      epoch_(epoch),
      reader_(open_data(recipe_, eval ? evaluation_split(recipe_) : recipe_.text("data.split"))),
      options_(eval ? pipeline::eval_loader_options(recipe_, *reader_, nullptr)
                    : pipeline::loader_options(recipe_, nullptr)),
      sampler_(options_, *reader_),
      plan_(plan_of(recipe_, epoch, eval, *reader_)),
      scratch_(plan_->make_scratch()) {
  options_.targets.format = BoxFormat::xyxy;
  options_.targets.relative = false;
  check_targets(options_, *reader_, *plan_);
}

Inspected Inspection::operator()(std::uint64_t place) {
  const Block block = neighbours_of(place);
  const Size size = plan_->output().size;
  const Annotations* const annotations = reader_->annotations();
  std::int64_t label = 0;
  if (plan_->group() == 1) {
    Inspected sample = run(place, options_.targets, label);
    if (annotations != nullptr) sample.label = classes_of(sample.objects);
    return sample;
  }
  const auto classes = static_cast<std::size_t>(plan_->soft_classes());
  const std::size_t bytes = plan_->output().bytes();
  const std::size_t own = place - block.first;
  const TargetOptions raw = pipeline::before_mixing(options_.targets);
  std::vector<std::uint8_t> pixels(block.count * bytes), masks;
  std::vector<float> rows(block.count * classes);
  Objects objects[2];
  Inspected sample;
  for (std::size_t i = 0; i < block.count; ++i) {
    Inspected one = run(block.first + i, raw, label);
    std::copy(one.pixels.begin(), one.pixels.end(), pixels.data() + i * bytes);
    masks.insert(masks.end(), one.mask.begin(), one.mask.end());
    if (classes > 0) rows[i * classes + static_cast<std::size_t>(label)] = 1;
    objects[0].points = one.objects.points;
    objects[0].mask_bytes = one.objects.mask_bytes;
    pipeline::end_sample(one.objects);
    pipeline::append_sample(one.objects, 0, objects[0]);
    if (i == own) sample = std::move(one);
  }
  augment::Trace trace;
  const auto seed = static_cast<std::uint64_t>(recipe_.integer("seed"));
  pipeline::ObjectMixer mixer(size, objects, filled_);
  plan_->mix({seed, epoch_, block.first},
             {reinterpret_cast<std::byte*>(pixels.data()),
              rows.data(),
              block.count,
              {},
              masks.empty() ? nullptr : masks.data(),
              annotations == nullptr ? nullptr : &mixer},
             *scratch_, &trace, own);
  std::copy_n(pixels.data() + own * bytes, bytes, sample.pixels.begin());
  std::copy_n(masks.data() + own * sample.mask.size(), sample.mask.size(), sample.mask.begin());
  for (augment::Trace::Drawn& drawn : trace.drawn) sample.trace.drawn.push_back(std::move(drawn));
  for (augment::Trace::Step& step : trace.steps) sample.trace.steps.push_back(std::move(step));
  if (classes > 0) sample.label = shares(std::span(rows).subspan(own * classes, classes));
  if (annotations != nullptr) {
    Objects single;
    single.points = objects[0].points;
    single.mask_bytes = objects[0].mask_bytes;
    pipeline::append_sample(objects[0], own, single);
    pipeline::hand_out(single, options_.targets, size, {}, sample.objects);
    sample.label = classes_of(sample.objects);
  }
  return sample;
}

Inspection::Block Inspection::neighbours_of(std::uint64_t place) const {
  const auto batch = static_cast<std::uint64_t>(pipeline::global_batch(recipe_, 1));
  const std::uint64_t begin = place / batch * batch;
  const std::uint64_t size = std::min(batch, count() - begin);
  const int group = plan_->group();
  if (group == MILLRACE_WHOLE_BATCH) return {begin, size};
  const auto step = static_cast<std::uint64_t>(group);
  const std::uint64_t first = (place - begin) / step * step;
  return {begin + first, std::min(step, size - first)};
}

std::string Inspection::name_of(std::int64_t label) const {
  const auto& classes = reader_->info().classes;
  const auto index = static_cast<std::size_t>(label);
  return index < classes.size() ? classes[index] : fmt::format("{}", label);
}

std::string Inspection::shares(std::span<const float> probabilities) const {
  std::string text;
  for (std::size_t i = 0; i < probabilities.size(); ++i)
    if (probabilities[i] > 0)
      text += fmt::format("{}{} {:.0f}%", text.empty() ? "" : " + ",
                          name_of(static_cast<std::int64_t>(i)), 100 * probabilities[i]);
  return text;
}

std::string Inspection::classes_of(const Objects& objects) const {
  std::string text;
  for (const std::int64_t label : objects.classes)
    text += (text.empty() ? "" : " + ") + name_of(label);
  return text.empty() ? "no object" : text;
}

Inspected Inspection::run(std::uint64_t place, const TargetOptions& targets, std::int64_t& label) {
  const std::uint64_t index = sampler_.order(epoch_)(place);
  Inspected result;
  result.name = reader_->name(index);
  try {
    SamplePixels source(*reader_, index, *plan_,
                        static_cast<std::uint64_t>(recipe_.integer("data.max_pixels")));
    result.size = source.size();
    label = source.label();
    result.label = name_of(label);
    result.pixels.resize(plan_->output().bytes());
    Trail trail;
    plan_->run(sampler_.key(epoch_, place, index), source,
               reinterpret_cast<std::byte*>(result.pixels.data()), *scratch_, &result.trace,
               &trail);
    if (const Annotations* annotations = reader_->annotations()) {
      result.objects.points = annotations->points;
      tracker_.track(*annotations, targets, index, result.size, trail, plan_->output().size,
                     result.objects);
      if (annotations->has_outlines) {
        const Size size = plan_->output().size;
        result.objects.mask_bytes =
            static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height);
        pipeline::append_masks(
            *annotations, index, result.size, trail, *plan_, *scratch_, filled_,
            [] { return false; }, result.objects);
      }
    }
    if (reader_->info().masks) {
      Buffer bytes;
      mask_.open(reader_->mask(index, bytes), options_.max_pixels);
      mask_.require_size(result.size);
      const Size size = plan_->output().size;
      result.mask.resize(static_cast<std::size_t>(size.width) *
                         static_cast<std::size_t>(size.height));
      plan_->move_mask(trail, mask_, options_.targets.mask_fill, result.mask.data(), *scratch_);
    }
  } catch (const DataError& error) {
    throw DataError(result.name + ": " + error.what(), error.hint());
  }
  return result;
}

namespace {

/// Returns name and label, then the draws, several per line.
std::vector<std::string> lines_of(const Inspected& sample) {
  std::vector<std::string> lines{
      std::filesystem::path(sample.name).filename().string(),
      fmt::format("{}, {}x{}", sample.label, sample.size.width, sample.size.height)};
  std::string op;
  for (const augment::Trace::Drawn& drawn : sample.trace.drawn) {
    const std::string value = fmt::format("{}={:.4g}", drawn.name, drawn.value);
    if (drawn.op == op && lines.back().size() + value.size() < 30) {
      lines.back() += " " + value;
    } else {
      lines.push_back(drawn.op == op ? "  " + value : drawn.op + ": " + value);
      op = drawn.op;
    }
  }
  return lines;
}

}  // namespace

void set_visible(Recipe& recipe) {
  const bool floats = recipe.text("decode.depth") != "8";
  for (const char* key : {floats ? "output.dtype=f32" : "output.dtype=u8",
                          "output.normalize=loader", "output.layout=hwc"})
    recipe.set(key);
}

Visible visible(std::vector<std::uint8_t> pixels, const SampleSpec& spec, const Recipe& recipe) {
  if (spec.dtype == DType::u8) return {std::move(pixels), spec.channels};
  const std::vector<double> mean = recipe.numbers("output.mean"),
                            std = recipe.numbers("output.std");
  std::vector<float> values(spec.elements());
  std::memcpy(values.data(), pixels.data(), values.size() * sizeof(float));
  const auto channels = static_cast<std::size_t>(spec.channels);
  const std::size_t shown = channels < 3 ? 1 : 3, count = values.size() / channels;
  const auto of = [&](std::size_t i, std::size_t c) {
    return values[i * channels + c] * static_cast<float>(std[std.size() > 1 ? c : 0]) +
           static_cast<float>(mean[mean.size() > 1 ? c : 0]);
  };
  float low = std::numeric_limits<float>::max(), high = std::numeric_limits<float>::lowest();
  for (std::size_t i = 0; i < count * shown; ++i) {
    const float value = of(i / shown, i % shown);
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  const float range = high > low ? high - low : 1;
  std::vector<std::uint8_t> levels(count * shown);
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const float part = (of(i / shown, i % shown) - low) / range;  // not a number: black
    levels[i] = static_cast<std::uint8_t>(part > 0 ? std::min(part, 1.0f) * 255 + 0.5f : 0.0f);
  }
  return {std::move(levels), static_cast<int>(shown)};
}

ContactSheet contact_sheet(Recipe recipe, std::uint32_t epoch, bool eval, std::size_t count,
                           int columns) {
  set_visible(recipe);
  Inspection inspection(std::move(recipe), epoch, eval);
  count = static_cast<std::size_t>(std::min<std::uint64_t>(inspection.count(), count));
  ContactSheet sheet{.samples = {}, .png = {}, .spec = inspection.plan().output()};
  std::vector<Tile> tiles;
  for (std::size_t i = 0; i < count; ++i) sheet.samples.push_back(inspection(i));
  const SampleSpec made = sheet.spec;
  for (Inspected& sample : sheet.samples) {
    Visible picture = visible(std::move(sample.pixels), made, inspection.recipe());
    sample.pixels = std::move(picture.pixels);
    sheet.spec.channels = picture.channels;
    sheet.spec.dtype = DType::u8;
  }
  for (const Inspected& sample : sheet.samples)
    tiles.push_back({sample.pixels.data(), sheet.spec.size.width, sheet.spec.size.height,
                     sheet.spec.channels, lines_of(sample), &sample.objects, sample.mask});
  sheet.png = draw_sheet(tiles, std::min(columns, static_cast<int>(count)));
  return sheet;
}

}  // namespace millrace::tools
