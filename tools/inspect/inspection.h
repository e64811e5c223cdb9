// Pipeline of a recipe, one sample at a time, without the loader.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "augment/plan/plan.h"
#include "millrace/reader.h"
#include "millrace/recipe.h"

namespace millrace::tools {

/// One sample after the plan.
struct Inspected {
  std::string name;
  std::string label;
  Size size;
  augment::Trace trace;
  std::vector<std::uint8_t> pixels;
};

class Inspection {
 public:
  /// Opens the data set and compiles the chain of training or evaluation. Throws what these throw.
  Inspection(Recipe recipe, std::uint32_t epoch, bool eval);

  /// Returns the sample at position `place` of the epoch's order. Throws DataError with its name.
  Inspected operator()(std::uint64_t place);

  const Recipe& recipe() const { return recipe_; }
  const augment::Plan& plan() const { return *plan_; }
  std::uint64_t count() const { return reader_->info().count; }
  std::uint32_t epoch() const { return epoch_; }

 private:
  Recipe recipe_;
  std::uint32_t epoch_;
  bool eval_;
  std::shared_ptr<const Reader> reader_;
  std::shared_ptr<const augment::Plan> plan_;
  std::unique_ptr<Transform::Scratch> scratch_;
};

}  // namespace millrace::tools
