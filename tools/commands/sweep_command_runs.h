// Runs of a sweep over any program.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "study/sweep/sweep_command.h"
#include "study/sweep/sweep_record.h"
#include "tools/launch/child.h"

namespace millrace::tools {

/// Executes a command for cells of a design, and reads the figures that its runs leave.
///   runs/NAME/stdout.txt, stderr.txt   its output
///   runs/NAME/run/                     {run}: whatever it writes there
class CommandRuns {
 public:
  /// `command` must outlive it.
  CommandRuns(const study::SweepCommand& command, const std::filesystem::path& runs);

  /// Returns the identity of a run: the command's words for that cell, folder and shell. The files
  /// of the program are not part of it.
  study::RunIdentity identity(const study::SweepCell& cell, std::uint64_t repeat) const;

  /// Runs the command. Returns 0 and sets `record.command`; or another exit code and, as last_line,
  /// why the run failed. Throws UsageError if the command is not found.
  ChildResult run(const study::SweepCell& cell, study::SweepRecord& record,
                  const std::function<void()>& meanwhile) const;

  /// Reads metrics that the record lacks, because an earlier sweep did not ask for them. Throws
  /// UsageError if the run has no such number.
  void complete(const study::SweepCell& cell, study::SweepRecord& record) const;

  /// Returns "wall_s 1.234, loss=([0-9.]+) 0.123".
  std::string figures_text(const study::SweepRecord& record) const;

 private:
  study::PlaceholderValues values(const study::SweepCell& cell,
                                  const study::SweepRecord& record) const;
  std::filesystem::path file_of(const study::CommandMetric& metric,
                                const study::PlaceholderValues& values) const;

  const study::SweepCommand& command_;
  std::filesystem::path runs_;
};

}  // namespace millrace::tools
