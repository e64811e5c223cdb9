// --trace [FILE.json]: a timeline of the run, of train and bench.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "pipeline/loader/timeline.h"
#include "tools/commands/commands.h"

namespace millrace::tools {

class TraceArgument {
 public:
  /// `where`: where it goes without a name, in words.
  void add_to(CLI::App& command, const std::string& where);
  /// Null where no trace was asked for. Throws UsageError for a name that doesn't end in .json.
  std::unique_ptr<pipeline::Timeline> start(const ProgramStart& start) const;
  /// Writes the trace to the file that was named, or else to `unnamed`; a rank > 0 puts its number
  /// before the .json. `device`: of a simulated one; else empty.
  void finish(const pipeline::Timeline& timeline, const std::string& device,
              std::filesystem::path unnamed, int rank) const;

 private:
  bool asked_ = false;
  std::string file_;
};

}  // namespace millrace::tools
