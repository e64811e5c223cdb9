// Words of failure reports.
#include "strategies/control/failure_report.h"

#include <fmt/format.h>

namespace millrace::train {

std::string FailureReport::text() const {
  const std::string who = fmt::format("rank {} ({}, pid {})", rank, host, pid);
  switch (kind) {
    case FailureKind::died:
      return fmt::format("{} died at step {}: its connection closed without a goodbye", who, step);
    case FailureKind::silent:
      return fmt::format("{} has not been heard of for {:.1f} s, the last time at step {}", who,
                         idle_s, step);
    case FailureKind::stuck:
      return fmt::format("{} is stuck at step {}: no progress for {:.1f} s, and others wait for it",
                         who, step, idle_s);
    case FailureKind::interrupted:
      if (step == 0) return "interrupted before the first step";
      return fmt::format("interrupted at step {}, but {} did not answer: no checkpoint was made",
                         step, who);
    case FailureKind::ended:
      break;
  }
  return fmt::format("{} ended at step {}: {}", who, step, reason);
}

std::string FailureReport::hint() const {
  switch (kind) {
    case FailureKind::died:
      return "it was killed (out of memory?) or has crashed: see its own output and its host's log";
    case FailureKind::silent:
      return "it was stopped, or its host or network is gone; where ranks may pause for so long, "
             "raise train.timeout";
    case FailureKind::stuck:
      return "a read or a device that never answers? where a step may take so long, raise "
             "train.timeout";
    case FailureKind::interrupted:
      return step == 0 ? ""
                       : "the last checkpoint holds: go on with millrace train --resume --run DIR";
    case FailureKind::ended:
      break;
  }
  return "the run cannot go on without it";
}

}  // namespace millrace::train
