// A batch that Python owns, and its arrays.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millrace/loader.h"
#include "millrace/reader.h"
#include "millrace/transform.h"

namespace millrace::python {

/// The reader and what its samples become; batches share it. The reader keeps its own stop flag.
struct Source {
  std::shared_ptr<const Reader> reader;
  SampleSpec output;
  bool mixes = false;  ///< an op mixes samples, so that targets of one would be wrong
};

/// A detached batch. Arrays are views that keep it alive.
struct OwnBatch {
  OwnBatch(Batch own, std::shared_ptr<const Source> of)
      : batch(std::move(own)), source(std::move(of)) {}
  Batch batch;
  std::shared_ptr<const Source> source;
  std::vector<float> warps{};  ///< nine per sample, if they were asked for
};

/// Adds the class Batch to the module.
void bind_batch(nanobind::module_& module);

}  // namespace millrace::python
