// The interface of an augmentation, and the table of those that there are.
#pragma once

#include <memory>
#include <span>

#include "augment/warp.h"
#include "pipeline/recipe.h"
#include "pipeline/rng.h"

namespace millrace {

/// A geometric augmentation: immutable, shared by all workers.
class GeometricOp {
 public:
  virtual ~GeometricOp() = default;
  /// Size of the output for an input of this size; throws UsageError where it cannot be done.
  virtual Size output(Size input) const = 0;
  /// What this sample gets. `draw` is this op's own stream; its order of draws is part of C1.
  virtual Warp plan(Size input, Draw& draw) const = 0;
};

/// An augmentation's declaration: the source of its documentation, its checks and its instances.
struct OpType {
  OpDeclaration declaration;
  std::unique_ptr<GeometricOp> (*make)(const Params& params);
};

/// All built-in augmentations, sorted by name.
std::span<const OpType* const> op_types();
/// Their declarations, for Recipe.
std::span<const OpDeclaration> op_declarations();
/// An instance; throws UsageError for parameters that don't fit together.
std::unique_ptr<GeometricOp> make_op(const OpSpec& spec);

/// One number for all channels, or one a channel.
Fill to_fill(const std::vector<double>& values);

}  // namespace millrace
