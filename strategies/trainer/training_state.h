// A training's state, as far as the next step depends on it: its copies for checkpoints, and the
// model's parameters.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace millrace::train {

class TrainingState {
 public:
  virtual ~TrainingState() = default;

  /// Writes a copy of the state into a checkpoint's folder. Throws RunError if a file cannot be
  /// completed.
  using Snapshot = std::function<void(const std::filesystem::path& folder)>;
  /// Copies the model and everything else that the next step depends on. Any thread may write the
  /// copy, as model.safetensors and files beside it, while training goes on. Its memory is used
  /// again for the next copy once the returned function is destroyed. Call it on every rank; only
  /// the first one gets a function.
  virtual Snapshot snapshot() = 0;
  /// Tells the first rank that this one's records are on disk up to `steps`. Any thread may call it
  /// on the other ranks.
  virtual void announce_records(std::uint64_t /*steps*/) {}
  /// Waits until all other ranks have announced their records up to `steps`, because a checkpoint
  /// counts only with them. Any thread may call it on the first rank. Throws RunError after
  /// train.timeout.
  virtual void wait_for_records(std::uint64_t /*steps*/) {}
  /// Writes the state before it returns. Call it on every rank.
  void save(const std::filesystem::path& folder) {
    if (const Snapshot write = snapshot()) write(folder);
  }
  /// Restores what a snapshot wrote: the next step has the same bits (contract Exact resumption).
  /// Throws DataError with the file if it is truncated or belongs to another model or optimizer.
  virtual void restore(const std::filesystem::path& folder) = 0;
  /// Returns the xxh3 of all parameters and buffers in the order of their names, as 16 hex digits.
  virtual std::string parameters_hash() = 0;
  /// Returns the number of trainable parameters; 0 without a model.
  virtual std::uint64_t parameter_count() const = 0;
};

}  // namespace millrace::train
