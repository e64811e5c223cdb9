// Runs a chain on one sample. Geometric ops are only folded until somebody needs pixels: an op
// that touches them, a warp that cannot be folded, or the end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "augment/plan/fold.h"
#include "augment/plan/plan.h"
#include "augment/plan/resample.h"
#include "millrace/buffer.h"

namespace millrace::augment {

/// One thread's working memory.
struct PlanScratch final : Transform::Scratch {
  Buffer pixels[2];  ///< between passes; they take turns
  Buffer op;         ///< what an op asks for
  ResampleScratch resample;
  LevelTable tables[3];
  LevelTable fresh[3];
  plugins::CallContext context;

  void trim(std::size_t most) override;
};

/// The size that a unit makes of an image of this size, as far as it says so before it runs. Throws
/// UsageError where the image does not fit the unit.
Size output_of(const plugins::Unit& unit, Size input, millrace_call& call);

class Runner {
 public:
  Runner(const SampleKey& key, PixelSource& source, int channels, const PlanOptions& options,
         PlanScratch& scratch, Trace* trace);

  /// `id` keys the op's draws.
  void apply(const plugins::Unit& unit, std::uint32_t id, const std::string& name);
  /// The size that the ops so far have led to.
  Size output() const { return fold_.output(); }
  /// Writes the sample; output() must be the spec's size.
  void finish(const SampleSpec& spec, const Store& store, std::byte* out);

 private:
  void geometric(const plugins::Unit& unit, const std::string& name);
  void pixel(const plugins::Unit& unit, const std::string& name);
  void filter(const plugins::Unit& unit, const std::string& name);
  void choice(const plugins::Unit& unit, std::uint32_t id, const std::string& name);
  void add_levels(const plugins::Unit& unit, const std::string& name);

  /// What is folded so far becomes pixels of ours, and the next fold's source.
  void flush();
  Pass next_pass();
  const LevelTable* tables() const { return has_tables_ ? scratch_.tables : nullptr; }
  std::uint8_t* next_buffer(Size size);
  void continue_with(std::uint8_t* pixels, Size size);
  Image image() const;
  /// As many bytes as the unit's `bytes` asks for; none where that is null.
  void lend_scratch(const plugins::Unit& unit,
                    std::size_t (*bytes)(const void*, millrace_size, std::int32_t));
  void note(const std::string& what, const std::string& detail);

  const SampleKey& key_;
  PixelSource& source_;
  const int channels_;
  const PlanOptions& options_;
  PlanScratch& scratch_;
  Trace* trace_;
  millrace_call& call_;

  Fold fold_;
  bool has_pixels_ = false;  ///< pixels_ is the fold's source, else source_ is
  std::uint8_t* pixels_ = nullptr;
  int turn_ = 0;
  bool has_tables_ = false;  ///< levels go through scratch_.tables behind the fold

  std::vector<std::string> folded_;  ///< names, with a trace
  std::int64_t since_ = 0;
};

}  // namespace millrace::augment
