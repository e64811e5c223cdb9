// Checkpoints on disk: folders that appear whole or not at all, written while the training goes on.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

#include "base/private_api.h"

namespace millrace::train {

struct CheckpointOptions {
  bool best = false;  ///< also point `best` at it
  int keep = 2;       ///< number of newest ones to keep, besides the best
};

/// Makes run/checkpoints/step-N. `write` fills step-N.tmp, which is synced and renamed; then `last`
/// points at it and older ones are removed. If anything fails, no incomplete folder has a final
/// name, and the RunError names the file. Returns the folder.
MILLRACE_PRIVATE_API std::filesystem::path write_checkpoint(
    const std::filesystem::path& run, std::uint64_t step, const CheckpointOptions& options,
    const std::function<void(const std::filesystem::path&)>& write);

/// Writes on a thread of its own, one write at a time. Its members belong to one other thread.
class MILLRACE_PRIVATE_API CheckpointWriter {
 public:
  CheckpointWriter() = default;
  /// Waits for the write. Its error is lost: call wait() before.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Begins to run `write`. Call wait() before. Runs it here if no thread can be started.
  void start(std::function<void()> write);
  /// Waits until the write has ended. Throws what it has thrown, once.
  void wait();
  /// Does the same if the write has ended already; otherwise returns at once.
  void check();

  /// Return the number of writes that have succeeded, and the seconds that they took. Call wait()
  /// before.
  std::uint64_t writes() const { return writes_; }
  double seconds() const { return seconds_; }

 private:
  void run(const std::function<void()>& write) noexcept;

  std::thread thread_;
  std::atomic<bool> ended_{false};
  std::exception_ptr failure_;  ///< of the write that has ended
  std::uint64_t writes_ = 0;
  double seconds_ = 0;
};

/// Returns the checkpoint to resume from: the target of `last` or, if it has none, the newest.
/// Empty if there is none yet.
MILLRACE_PRIVATE_API std::filesystem::path last_checkpoint(const std::filesystem::path& run);

/// Returns all checkpoints of the run, newest first, named as by last_checkpoint().
MILLRACE_PRIVATE_API std::vector<std::filesystem::path> checkpoints_of(
    const std::filesystem::path& run);

/// Returns the weights that `what` names: a run directory (its last checkpoint), a checkpoint's
/// folder, or a .safetensors file. Prefers averaged weights if they were kept. Throws DataError if
/// there are none.
MILLRACE_PRIVATE_API std::filesystem::path find_weights(const std::filesystem::path& what);
/// Returns the config.toml that belongs to `what`. Throws DataError if there is none.
MILLRACE_PRIVATE_API std::filesystem::path find_config(const std::filesystem::path& what);

}  // namespace millrace::train
