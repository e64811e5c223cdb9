// A timeline as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open: the Trace Event
// Format, https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "pipeline/loader/timeline.h"

namespace millrace::study {

struct TraceOptions {
  std::string process = "millrace";  ///< the process's name in the trace
  std::string device;                ///< name of the device's track; empty: none
  std::uint64_t first_batch = 0;     ///< ordinal of the run's first batch: steps count on from it
};

/// Writes the whole file or none. One track each for the trainer (its steps, with its spans
/// inside), a simulated device, the emulated storage, every I/O thread and every worker; an arrow
/// from each work unit of the training's batches to the step that took it. Times are in µs from the
/// timeline's origin. Call it when nobody records any more. Throws RunError.
void write_trace(const pipeline::Timeline& timeline, const TraceOptions& options,
                 const std::filesystem::path& file);

}  // namespace millrace::study
