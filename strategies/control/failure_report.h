// Describes which rank failed, and how. Every rank prints it before it leaves.
#pragma once

#include <cstdint>
#include <string>

namespace millrace::train {

enum class FailureKind : std::uint8_t {
  died,         ///< its connection closed without a goodbye: killed or crashed
  silent,       ///< no heartbeat: stopped, or its host or network is lost
  stuck,        ///< its trainer thread makes no progress while others wait for it in a collective
  ended,        ///< it ended by its own error, which is `reason`
  interrupted,  ///< a signal came, and no checkpoint can be agreed on (before the first step, or no
                ///< answer)
};

struct FailureReport {
  FailureKind kind = FailureKind::died;
  int rank = 0;
  std::uint64_t pid = 0;
  std::string host;
  std::uint64_t step = 0;  ///< last known step, up to one heartbeat old
  double idle_s = 0;       ///< silent, stuck: duration
  std::string reason;      ///< ended: the error, in one line

  /// Returns one line: "rank 1 (host, pid 123) ended at step 120: images/7.jpg: cannot be decoded".
  std::string text() const;
  /// Returns advice for the user, or an empty string.
  std::string hint() const;

  bool operator==(const FailureReport&) const = default;
};

}  // namespace millrace::train
