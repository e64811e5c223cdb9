// millrace plugins check: tries a plugin out in a child process, so that nothing it does can harm
// this one (plugin-tools contract).
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

namespace millrace::tools {

struct CheckOptions {
  std::string file;    ///< the plugin
  std::string sample;  ///< an image for its decoders; empty: they see no whole one
  std::string path;    ///< a data set for its readers; empty: they open none
  std::string split = "train";
  double timeout_s = 10;                    ///< for one check
  bool cost = false;                        ///< measure longer, and at more sizes
  const std::atomic<bool>* stop = nullptr;  ///< once set, check_plugin() throws
};

/// One line of the report.
struct CheckLine {
  enum class State { ok, failed, skipped };
  std::string unit;   ///< empty: the plugin as a whole
  std::string check;  ///< "load", "images", "threads", ...
  State state = State::ok;
  std::string detail;
};

/// Time of one call, the median of many.
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

/// Runs all checks; a plugin that crashes or hangs fails the one check, and the next ones follow in
/// a new child. `line` sees each as it is known. Throws DataError for a sample that
/// is not there, RunError when no child can be started.
CheckReport check_plugin(const CheckOptions& options,
                         const std::function<void(const CheckLine&)>& line = {});

}  // namespace millrace::tools
