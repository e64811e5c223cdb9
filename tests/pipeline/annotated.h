// A data set in memory whose images have boxes and key points.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "augment/plan/plan.h"
#include "millrace/loader.h"
#include "millrace/reader.h"
#include "plugins/host/registry.h"

namespace millrace::pipeline {

/// Gray images of one size and level, with the annotations that are given.
class Annotated : public Reader {
 public:
  Annotated(Size size, Annotations annotations)
      : annotations_(std::move(annotations)),
        pixels_(static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height) +
                kTailSlack) {
    info_.reader = "annotated";
    info_.path = "memory";
    info_.split = "train";
    info_.count = annotations_.ends.size();
    info_.classes.resize(10);
    info_.size = size;
    info_.channels = 1;
    annotations_.sizes.assign(info_.count, size);
  }
  Sample read(std::uint64_t, Buffer&) const override {
    return {{pixels_.data(), pixels_.size() - kTailSlack}, 0};
  }
  std::string name(std::uint64_t index) const override { return "image " + std::to_string(index); }
  const Annotations* annotations() const override { return &annotations_; }

 private:
  Annotations annotations_;
  std::vector<std::uint8_t> pixels_;
};

/// Returns the plan of a chain of ops as overrides write them.
inline std::shared_ptr<const augment::Plan> plan_for(const Reader& reader,
                                                     const std::vector<std::string>& ops) {
  Recipe recipe(op_declarations());
  for (const std::string& op : ops) recipe.set("augment+=" + op);
  return std::make_shared<augment::Plan>(
      recipe.augment(), Source{reader.info().size, reader.info().channels},
      OutputOptions{DType::u8, Layout::chw, {0}, {1}}, Resample::once,
      reader.annotations() != nullptr || reader.info().masks ? kUnmixedLabels : 10);
}

}  // namespace millrace::pipeline
