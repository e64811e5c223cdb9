// The option --trace: the timeline of a run, written for ui.perfetto.dev.
#pragma once

#include <memory>
#include <string>

#include "pipeline/loader/timeline.h"
#include "tools/commands/commands.h"

namespace millrace::tools {

class TraceArgument {
 public:
  /// Adds the option.
  void add_to(CLI::App& command);
  /// Returns null if no trace was asked for. Throws UsageError for a name that does not end in
  /// .json.
  std::unique_ptr<pipeline::Timeline> start(const ProgramStart& start) const;
  /// Writes the trace. A rank > 0 puts its number before the .json. `device` names a simulated
  /// device; otherwise empty.
  void finish(const pipeline::Timeline& timeline, const std::string& device, int rank) const;

 private:
  std::string file_;  ///< empty: no trace
};

}  // namespace millrace::tools
