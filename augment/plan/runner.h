// Runs a chain on one sample. Geometric ops are folded until pixels are needed: by an op that
// touches them, by a warp that cannot be folded, or at the end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "augment/plan/float_pass.h"
#include "augment/plan/fold.h"
#include "augment/plan/plan.h"
#include "augment/plan/resample.h"
#include "millrace/buffer.h"

namespace millrace::augment {

/// Working memory of one thread.
struct PlanScratch final : Transform::Scratch {
  Buffer pixels[2];  ///< between passes; they take turns
  Buffer op;         ///< scratch of an op
  ResampleScratch resample;
  FloatScratch floats;
  LevelTable tables[3];
  LevelTable fresh[3];
  std::vector<std::int32_t> group_places;  ///< positions of the group's samples in the batch
  std::vector<void*> group;                ///< samples of the group that is mixed
  std::vector<float*> group_labels;        ///< their labels
  std::vector<void*> group_masks;          ///< their masks, if there are any
  std::vector<millrace_part> parts;        ///< parts of one op's samples in all groups
  std::vector<std::uint8_t> picked;        ///< 1 for each of the batch's objects that one op pastes
  plugins::CallContext context;

  void trim(std::size_t most) override;
};

/// Returns the size that a unit makes of an image of this size, as far as the unit declares it
/// before it runs. Throws UsageError if the image does not fit the unit.
Size output_of(const plugins::Unit& unit, Size input, millrace_call& call);

class Runner {
 public:
  /// With `floats`, pixels are converted to floats before the first pass.
  Runner(const SampleKey& key, PixelSource& source, int channels, bool floats,
         const PlanOptions& options, PlanScratch& scratch, Trace* trace, Trail* trail);

  /// Applies an op; `id` keys its draws.
  void apply(const plugins::Unit& unit, std::uint32_t id, const std::string& name);
  /// Applies the warp of an op.
  void move(const millrace_warp& warp, const std::string& name);
  /// Returns the size after the ops so far.
  Size output() const { return fold_.output(); }
  /// Writes the sample. output() must equal the spec's size.
  void finish(const SampleSpec& spec, const Store& store, std::byte* out);

 private:
  void geometric(const plugins::Unit& unit, const std::string& name);
  void pixel(const plugins::Unit& unit, const std::string& name);
  void filter(const plugins::Unit& unit, const std::string& name);
  void choice(const plugins::Unit& unit, std::uint32_t id, const std::string& name);
  void add_levels(const plugins::Unit& unit, const std::string& name);

  /// Runs the pass folded so far; its pixels become the next fold's source.
  void flush();
  Pass next_pass();
  const LevelTable* tables() const { return has_tables_ ? scratch_.tables : nullptr; }
  std::uint8_t* next_buffer(Size size);
  void continue_with(std::uint8_t* pixels, Size size);
  Image image() const;
  FloatImage float_image() const;
  /// Returns a view of pixels in scratch memory.
  ImageView in_memory(const std::uint8_t* pixels, Size size) const {
    return interleaved(pixels, size, channels_, depth_);
  }
  /// Lends the unit as many bytes as its function `bytes` returns; none if that is null.
  void lend_scratch(const plugins::Unit& unit,
                    std::size_t (*bytes)(const void*, millrace_size, std::int32_t));
  void note(const std::string& what, const std::string& detail);

  const SampleKey& key_;
  PixelSource& source_;
  const int channels_;
  const Depth depth_;  ///< of pixels in scratch memory: u8 or f32
  const PlanOptions& options_;
  PlanScratch& scratch_;
  Trace* trace_;
  Trail* trail_;
  millrace_call& call_;

  Fold fold_;
  bool has_pixels_ = false;  ///< pixels_ is the fold's source; otherwise source_ is
  std::uint8_t* pixels_ = nullptr;
  int turn_ = 0;
  bool has_tables_ = false;  ///< scratch_.tables apply to levels behind the fold

  std::vector<std::string> folded_;  ///< names of the folded ops, with a trace
  std::int64_t since_ = 0;
};

}  // namespace millrace::augment
