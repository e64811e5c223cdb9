// A run's timeline as a trace for Perfetto (ui.perfetto.dev) and chrome://tracing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "measure/timeline.h"

namespace millrace::study {

struct TraceOptions {
  std::string process = "millrace";  ///< name of the process in the trace
  std::string device;                ///< name of the device's track; empty: no track
  std::uint64_t first_batch = 0;     ///< ordinal of the run's first batch: step numbers start there
};

/// Writes the whole file or none. The trainer (steps, with spans inside), a simulated device, the
/// emulated storage, every I/O thread and every worker have one track each. An arrow leads from
/// each work unit of the training's batches to the step that took it. Times are in µs from the
/// timeline's origin. Call it when no thread records any more. Throws RunError.
void write_trace(const measure::Timeline& timeline, const TraceOptions& options,
                 const std::filesystem::path& file);

}  // namespace millrace::study
