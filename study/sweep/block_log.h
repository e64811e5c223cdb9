// Records who runs a block of a sweep and which result counts: a log in the block's folder on a
// file system that several hosts share.
//   1.json, 2.json, ...    entries; each is linked into place once, complete, and never changed
//   attempt-N/heartbeat    counter of the claimant of entry N; grows while it lives. It is there
//                          before the claim is.
//   attempt-N/runs/        its runs
// An entry is a claim, a result, or the report of a failure. A claimant publishes by adding the
// entry after its own claim, and a host that takes the block over adds its claim at the same place:
// the first link wins, so a claimant that was overtaken can never publish.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/descriptor.h"

namespace millrace::study {

/// A process, as claims name it.
struct BlockOwner {
  std::string host;
  std::int64_t pid = 0;
  std::uint64_t started = 0;  ///< start of the process, in clock ticks since boot
  std::string space;          ///< boot and pid namespace: where `pid` means anything
  std::string job;            ///< job of the cluster's scheduler; empty: none

  /// Returns "pid 12 on host n1" or "job 7_2, pid 12 on host n1".
  std::string text() const;
};

/// Returns this process.
BlockOwner this_owner();

struct BlockEntry {
  enum class Kind { claim, result, failure };
  Kind kind = Kind::claim;
  int number = 1;
  int attempt = 1;             ///< number of the claim that it belongs to
  BlockOwner owner;            ///< whose it is
  nlohmann::ordered_json all;  ///< everything that the entry holds
};

/// State of a claimant as an observer sees it.
enum class Pulse {
  beating,  ///< its counter has grown
  silent,   ///< its counter has not grown for the observer's patience
  gone,     ///< it was a process of this machine, and has ended
  left,     ///< it has ended with complete runs that it could not publish
};

/// Result of observing a claimant.
struct Observation {
  Pulse pulse = Pulse::beating;
  std::chrono::milliseconds patience{0};  ///< how long a silent one was given
};

class BlockLog {
 public:
  static constexpr std::chrono::seconds kUnseenPatience{120};

  explicit BlockLog(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const std::filesystem::path& folder() const { return folder_; }
  /// Returns the entries in order. Throws DataError for a damaged one.
  std::vector<BlockEntry> entries() const;
  /// Returns the last entry; none if the block has not been claimed yet.
  std::optional<BlockEntry> last() const;
  /// Adds entry `number`. Returns false if it exists already. Throws RunError if the file system
  /// cannot link files.
  bool add(int number, const nlohmann::ordered_json& entry) const;
  /// Returns the folder of an attempt.
  std::filesystem::path attempt(int number) const;
  /// Returns whether the claimant has left complete runs that it could not publish.
  bool has_left(const BlockEntry& claim) const;
  /// Watches the claimant until it shows whether it lives. Time is measured by this process's
  /// monotonic clock and only while this process runs, so that neither the clocks of other hosts
  /// nor a suspension count. A claimant without any heartbeat is given kUnseenPatience at least:
  /// the cache of a network file system may hide a new file for a minute. The observation begins
  /// with the first heartbeat that can be read; one that cannot be read does not count. `pause` is
  /// called at each look and returns false to end the watch: the claimant then counts as beating.
  Observation watch(const BlockEntry& claim, std::chrono::milliseconds patience,
                    const std::function<bool()>& pause = {}) const;

 private:
  std::filesystem::path folder_;
};

/// A block that this process has claimed.
class BlockClaim {
 public:
  /// Claims the block as entry `number`. Empty if another process was faster.
  static std::optional<BlockClaim> take(const BlockLog& log, int number,
                                        nlohmann::ordered_json about);

  std::filesystem::path folder() const { return log_.attempt(number_); }
  int number() const { return number_; }
  /// Advances the counter if a second has passed, and returns whether it has. Call it often.
  bool beat();
  /// Returns whether another process has taken the block over; once true, always true.
  bool is_overtaken();
  /// Publishes the result. Returns false if the block has been taken over.
  bool publish(const nlohmann::ordered_json& result) { return end("result", result); }
  /// Says why this attempt has no result, so that the block is free at once.
  void give_up(const std::string& reason);
  /// Says that the runs are complete although they cannot be published, so that the next claimant
  /// may take them over. Needs no space on the disk. Returns whether others can know, even if this
  /// host fails.
  bool leave();

 private:
  BlockClaim(BlockLog log, int number, nlohmann::ordered_json about)
      : log_(std::move(log)), number_(number), about_(std::move(about)) {}
  bool end(const char* kind, const nlohmann::ordered_json& more);
  /// Creates the heartbeat, unless it is there. Throws RunError.
  void create_heartbeat() const;
  /// Opens the heartbeat and overwrites it in place. Returns its descriptor; empty if that failed.
  base::Descriptor write_heartbeat(const std::string& text) const;

  BlockLog log_;
  int number_;
  nlohmann::ordered_json about_;
  std::uint64_t beats_ = 0;
  std::chrono::steady_clock::time_point beaten_;
  bool overtaken_ = false;
};

}  // namespace millrace::study
