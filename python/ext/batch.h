// A batch that Python owns, and its arrays.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millrace/loader.h"
#include "millrace/reader.h"
#include "millrace/transform.h"
#include "python/ext/interrupt.h"

namespace millrace::python {

/// The reader and what its samples become; batches share it. The reader keeps its own stop flag.
struct Source {
  std::shared_ptr<const Reader> reader;
  SampleSpec output;   ///< with the largest size of all epochs
  bool mixes = false;  ///< an op mixes samples, so that targets of one would be wrong
  std::shared_ptr<Interrupts> interrupts;  ///< end waits for a server; null if there is none

  /// Runs work that may wait for a server, which Ctrl-C ends. Call it without the GIL.
  template <class Work>
  auto run(const Work& work) const {
    return interrupts != nullptr ? run_interruptibly(*interrupts, work) : work();
  }
  /// Returns the name of a sample. Call it without the GIL.
  std::string name(std::uint64_t sample) const {
    return run([&] { return reader->name(sample); });
  }
};

/// Names of a data set's samples: pymillrace._core.Names in Python.
struct Names {
  std::shared_ptr<const Source> source;
  /// Returns the names of samples. Call it without the GIL.
  std::vector<std::string> of(const std::vector<std::uint64_t>& samples) const;
};

/// A detached batch. Arrays share it.
struct OwnBatch {
  OwnBatch(Batch own, std::shared_ptr<const Source> of, bool arrays)
      : batch(std::move(own)), source(std::move(of)), numpy(arrays) {}
  Batch batch;
  std::shared_ptr<const Source> source;
  bool numpy = false;  ///< hands out numpy.ndarray in place of torch.Tensor
};

/// A batch as Python holds it: pymillrace._core.Batch.
struct RawBatch {
  std::shared_ptr<OwnBatch> own;
};

/// Returns an instance of pymillrace.Batch, which `type` is: the tuple (images, labels), with the
/// RawBatch of `own` as its attribute _raw.
nanobind::object make_batch(nanobind::handle type, std::shared_ptr<OwnBatch> own);

/// Adds the classes Batch and Names to the module.
void bind_batch(nanobind::module_& module);

}  // namespace millrace::python
