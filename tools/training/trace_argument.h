// Option --trace [FILE.json] of train and bench: a timeline of the run.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "pipeline/loader/timeline.h"
#include "tools/commands/commands.h"

namespace millrace::tools {

class TraceArgument {
 public:
  /// Adds the option. `where` describes the default place of the file.
  void add_to(CLI::App& command, const std::string& where);
  /// Returns null if no trace was asked for. Throws UsageError for a name that does not end in
  /// .json.
  std::unique_ptr<pipeline::Timeline> start(const ProgramStart& start) const;
  /// Writes the trace to the named file, or else to `unnamed`. A rank > 0 puts its number before
  /// the .json. `device` names a simulated device; otherwise empty.
  void finish(const pipeline::Timeline& timeline, const std::string& device,
              std::filesystem::path unnamed, int rank) const;

 private:
  bool asked_ = false;
  std::string file_;
};

}  // namespace millrace::tools
