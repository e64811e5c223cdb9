#include "augment/op.h"

#include <algorithm>
#include <vector>

#include "pipeline/error.h"

namespace millrace {

extern const OpType kHflip;
extern const OpType kRandomAffine;
extern const OpType kRandomCrop;

std::span<const OpType* const> op_types() {
  static const OpType* const types[] = {&kHflip, &kRandomAffine, &kRandomCrop};
  return types;
}

std::span<const OpDeclaration> op_declarations() {
  static const std::vector<OpDeclaration> declarations = [] {
    std::vector<OpDeclaration> all;
    for (const OpType* type : op_types()) all.push_back(type->declaration);
    return all;
  }();
  return declarations;
}

std::unique_ptr<GeometricOp> make_op(const OpSpec& spec) {
  for (const OpType* type : op_types())
    if (type->declaration.name == spec.op) return type->make(spec.params);
  throw UsageError("there is no augmentation " + spec.op);
}

Fill to_fill(const std::vector<double>& values) {
  Fill fill{};
  for (std::size_t c = 0; c < fill.size(); ++c)
    fill[c] = static_cast<std::uint8_t>(values.size() == 1  ? values[0]
                                        : c < values.size() ? values[c]
                                                            : 0);
  return fill;
}

}  // namespace millrace
