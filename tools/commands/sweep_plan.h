// A planned sweep: a directory whose blocks may be run by several processes on several hosts.
//   plan.json        what the blocks are, and the program that they are for
//   blocks/0001/     claims, attempts and the result of block 1 (study/sweep/block_log.h)
// Everything else is written by collect_blocks() and is the same as in a local sweep's directory.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "millrace/error.h"
#include "study/sweep/block_log.h"
#include "tools/commands/sweep.h"

namespace millrace::tools {

struct SweepPlan {
  std::filesystem::path path;  ///< the sweep's directory, absolute
  std::vector<std::string>
      blocks;            ///< what tells each block from any other: its runs' keys, hashed
  std::string version;   ///< of the program that made the plan
  std::string binary;    ///< hash of that program and its libraries
  std::string folder;    ///< where relative paths of the recipe begin
  std::string note;      ///< what data a study runs on; may be empty
  bool is_ours = false;  ///< signed by this user's millrace: `folder` may be entered

  std::uint64_t size() const { return blocks.size(); }
  /// Returns the log of block `block`, which counts from 1.
  study::BlockLog log(std::uint64_t block) const;
  /// Reads a block's number. Throws UsageError unless the plan has that block.
  std::uint64_t number_of(const std::string& text) const;
};

/// Returns whether a directory holds a planned sweep of any version.
bool is_planned(const std::filesystem::path& path);
/// Reads a plan. Throws UsageError if there is none or if it is of another version of the format,
/// DataError if it is damaged.
SweepPlan read_plan(const std::filesystem::path& path);
/// Writes and signs the plan of the first `blocks` blocks, and returns it. Throws UsageError if the
/// directory holds another plan that this one does not begin with.
SweepPlan write_plan(const std::filesystem::path& path, SweepIdentities& identities,
                     std::uint64_t blocks, const std::string& note);
/// Throws UsageError unless this program made the plan: runs of several versions are not compared.
void require_same_program(const SweepPlan& plan);

/// Throws UsageError if the runs of block `block` are no longer those that were planned.
void require_planned(const SweepPlan& plan, SweepIdentities& identities, std::uint64_t block);

/// Thrown for a block that another process is running.
struct BlockTaken : UsageError {
  using UsageError::UsageError;
};

/// Claims block `block`, runs it in the attempt's directory, and publishes the result. Does nothing
/// for a block that is done. Takes the block over from a claimant that has shown no heartbeat for
/// `patience`. Throws BlockTaken if another process is running it, RunError if another process has
/// taken it over meanwhile, and the error of a run that fails; the block is then free again.
void run_block(const SweepPlan& plan, const Question& question, SweepIdentities& identities,
               std::uint64_t block, std::chrono::milliseconds patience);

/// Published blocks of a planned sweep.
struct CollectedBlocks {
  std::vector<std::uint64_t> repeats;                         ///< their numbers, from 0
  std::vector<std::pair<std::size_t, std::string>> refusals;  ///< cells that were not run, and why
  nlohmann::ordered_json where;  ///< per block its number, host, attempt and program version
};

/// Moves the runs of published blocks to the sweep's runs/. The caller holds the sweep's lock.
/// Throws UsageError if blocks were run by different versions of the program.
CollectedBlocks collect_blocks(const SweepPlan& plan);

}  // namespace millrace::tools
