// Draws pictures with captions side by side, as a PNG.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "augment/plan/plan.h"
#include "millrace/annotations.h"
#include "millrace/buffer.h"
#include "millrace/reader.h"
#include "millrace/recipe.h"
#include "pipeline/decoders/label_png.h"
#include "pipeline/loader/sampler.h"
#include "pipeline/targets/object_tracker.h"
#include "tools/training/setup.h"

namespace millrace::tools {

/// One picture and its caption.
struct Tile {
  const std::uint8_t* pixels;  ///< height x width x channels (1 or 3), contiguous
  int width, height, channels;
  std::vector<std::string> lines;
  const Objects* objects =
      nullptr;  ///< boxes (xyxy, in pixels) and key points to draw; may be null
  std::span<const std::uint8_t> mask{};  ///< height x width class ids to draw; may be empty
};

/// Returns the bytes of a PNG with `columns` tiles per row. Throws RunError if it cannot be
/// encoded.
std::string draw_sheet(std::span<const Tile> tiles, int columns);

// Pipeline of a recipe, one sample at a time, without the loader.

/// One sample after the plan, mixed with its neighbour in the batch if the chain mixes samples.
struct Inspected {
  std::string name;
  std::string label;  ///< of a mixed sample: the shares of its labels
  Size size;
  augment::Trace trace;
  std::vector<std::uint8_t> pixels;
  Objects objects{};  ///< what is left of those that the data set marks, as xyxy in pixels
  std::vector<std::uint8_t> mask{};  ///< class ids; empty if the data set has no masks
};

/// Sets the keys of [output] that make samples pictures: levels as the store receives them, before
/// normalisation, or with decode.depth floats, which visible() turns into levels.
void set_visible(Recipe& recipe);

/// Gray or RGB of 8 bits.
struct Visible {
  std::vector<std::uint8_t> pixels;  ///< height x width x channels
  int channels;                      ///< 1 or 3
};
/// Returns a sample that a recipe made after set_visible(). Of floats it shows the first channel,
/// or the first three: the lowest value becomes black, the highest white.
Visible visible(std::vector<std::uint8_t> pixels, const SampleSpec& spec, const Recipe& recipe);

class Inspection {
 public:
  /// Opens the data set and compiles the chain of training or evaluation. Throws what these throw.
  Inspection(Recipe recipe, std::uint32_t epoch, bool eval);

  /// Returns the sample at position `place` of the epoch's order. Throws DataError with its name.
  Inspected operator()(std::uint64_t place);

  const Recipe& recipe() const { return recipe_; }
  const augment::Plan& plan() const { return *plan_; }
  /// Returns the number of samples in an epoch.
  std::uint64_t count() const { return epoch_samples(options_, reader_->info().count); }
  std::string name(std::uint64_t index) const { return reader_->name(index); }
  std::uint32_t epoch() const { return epoch_; }

 private:
  /// Runs the chain on one sample, without its neighbours.
  Inspected run(std::uint64_t place, const TargetOptions& targets, std::int64_t& label);
  /// Positions [first, first + count) of an epoch's order.
  struct Block {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
  };
  /// Returns the samples that the loader may mix with that at `place`, itself among them.
  Block neighbours_of(std::uint64_t place) const;
  std::string name_of(std::int64_t label) const;
  std::string shares(std::span<const float> probabilities) const;
  std::string classes_of(const Objects& objects) const;

  Recipe recipe_;
  std::uint32_t epoch_;
  std::shared_ptr<const Reader> reader_;
  LoaderOptions options_;
  pipeline::Sampler sampler_;
  std::shared_ptr<const augment::Plan> plan_;
  std::unique_ptr<Transform::Scratch> scratch_;
  pipeline::ObjectTracker tracker_;
  pipeline::LabelPng mask_;
  Buffer filled_;  ///< mask of an object before it is moved, or of those that are pasted
};

/// Shows samples as the model sees them, side by side in one PNG, with the draws that made them.
struct ContactSheet {
  std::vector<Inspected> samples;
  std::string png;  ///< bytes of the PNG
  SampleSpec spec;  ///< shape of each picture
};

/// Draws the first `count` samples of the epoch, processed up to the store but not normalised.
/// Throws what opening the data set throws.
ContactSheet contact_sheet(Recipe recipe, std::uint32_t epoch, bool eval, std::size_t count,
                           int columns);

}  // namespace millrace::tools
