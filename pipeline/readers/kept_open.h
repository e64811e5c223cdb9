// Bounds the archives that stay open: 256 per reader, and for all readers of a process together
// half of the descriptors that it may have. Further local archives are opened for each read; a
// reader of remote ones closes others first.
#pragma once

#include <sys/resource.h>

#include <atomic>
#include <cstddef>

namespace millrace::pipeline {

/// A reader's share of the descriptors that all readers of this process keep. May be called from
/// many threads, which may pass a bound by one archive each.
class KeptOpen {
 public:
  /// Most archives of one data set that stay open.
  static constexpr std::size_t kMaxOpen = 256;

  KeptOpen() = default;
  ~KeptOpen() { clear(); }
  KeptOpen(const KeptOpen&) = delete;
  KeptOpen& operator=(const KeptOpen&) = delete;

  /// Returns the share, after the archives were closed.
  void clear() {
    all() -= mine_;
    mine_ = 0;
  }
  /// Returns whether one more archive may stay open.
  bool room() const {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    return mine_ < kMaxOpen && 2 * all() < limit.rlim_cur;
  }
  /// Counts an archive that stays open, if there is room for it.
  bool add() {
    if (!room()) return false;
    ++all();
    ++mine_;
    return true;
  }
  /// Gives back what add() has counted.
  void remove() {
    --all();
    --mine_;
  }

 private:
  static std::atomic<std::size_t>& all() {
    static std::atomic<std::size_t> count{0};
    return count;
  }
  std::atomic<std::size_t> mine_{0};
};

}  // namespace millrace::pipeline
