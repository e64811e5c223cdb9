// millrace plugins check: tries a plugin in a child process, so that nothing it does can harm this
// one (contract Plugin tools).
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

namespace millrace::tools {

struct CheckOptions {
  std::string file;    ///< path of the plugin
  std::string sample;  ///< image for its decoders; empty: they get no valid one
  std::string path;    ///< data set for its readers; empty: they open none
  std::string split = "train";
  double timeout_s = 10;                    ///< time-out per check
  bool cost = false;                        ///< measures longer, and at more sizes
  const std::atomic<bool>* stop = nullptr;  ///< once set, check_plugin() throws
};

/// One line of the report.
struct CheckLine {
  enum class State { ok, failed, skipped };
  std::string unit;   ///< empty: the whole plugin
  std::string check;  ///< "load", "images", "threads", ...
  State state = State::ok;
  std::string detail;
};

/// Time of one call: the median of many.
struct CheckCost {
  std::string unit;
  std::string of;  ///< "224x224 RGB"
  double ns = 0;
};

struct CheckReport {
  std::vector<CheckLine> lines;
  std::vector<CheckCost> costs;
  std::size_t failed() const;
};

/// Runs all checks. A plugin that crashes or hangs fails only that check, and the next ones run in
/// a new child. Calls `line` with each result. Throws DataError for a missing sample, RunError if
/// no child can be started.
CheckReport check_plugin(const CheckOptions& options,
                         const std::function<void(const CheckLine&)>& line = {});

}  // namespace millrace::tools
