// Blocks of a planned sweep on a cluster: what state they are in, and how Slurm gets to run them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/commands/sweep_plan.h"

namespace millrace::tools {

/// A block's state.
///   done      its result is published
///   running   its claimant's heartbeat grows
///   queued    Slurm has a job for it that has not claimed it yet
///   failed    its last attempt ended without a result
///   open      none of these
struct BlockState {
  std::uint64_t block = 1;
  std::string state;
  std::string host;    ///< of its last attempt; empty: none
  int attempts = 0;    ///< claims so far
  std::string detail;  ///< job, or why it failed
};

/// The states of all blocks, and why Slurm was not asked (empty: it was, or has no job of them).
struct SweepStates {
  std::vector<BlockState> blocks;
  std::string note;

  std::size_t count(const std::string& state) const;
};

/// Reads the sweep's directory and asks squeue. A claimant without a heartbeat for `patience` has
/// failed; this takes a second where all claimants live.
SweepStates block_states(const SweepPlan& plan, std::chrono::milliseconds patience);

/// Prints the states as a table, or as JSON with --json.
void print_states(const SweepPlan& plan, const SweepStates& states);

/// Options of a submission; empty ones are the cluster's defaults.
struct SlurmOptions {
  std::string partition;
  std::string time;
};

/// Throws UsageError if sbatch is not installed.
void require_slurm();

/// Submits an array job with a task for each block that is neither done, running nor queued.
/// Returns its number; empty if there is no such block. Throws UsageError with sbatch's own words
/// if it refuses the job.
std::string submit_blocks(const SweepPlan& plan, const SlurmOptions& options,
                          std::chrono::milliseconds patience);

/// Returns numbers in ascending order as sbatch takes them: "1-3,7".
std::string ranges(const std::vector<std::uint64_t>& numbers);

}  // namespace millrace::tools
