// Which rank has failed, and how: what every rank prints before it leaves.
#pragma once

#include <cstdint>
#include <string>

namespace millrace::train {

enum class FailureKind : std::uint8_t {
  died,         ///< its connection closed without a goodbye: killed, or crashed
  silent,       ///< no heartbeat: stopped, or its host or network is gone
  stuck,        ///< its trainer thread makes no progress while others wait for it in a collective
  ended,        ///< by an error of its own, which is `reason`
  interrupted,  ///< a signal came, and no checkpoint can be agreed on: before the first step there
                ///< is none to make, later this rank did not answer
};

struct FailureReport {
  FailureKind kind = FailureKind::died;
  int rank = 0;
  std::uint64_t pid = 0;
  std::string host;
  std::uint64_t step = 0;  ///< the last one known of, up to a heartbeat old
  double idle_s = 0;       ///< silent, stuck: for so long
  std::string reason;      ///< ended: its error, in one line

  /// One line: "rank 1 (host, pid 123) ended at step 120: images/7.jpg: cannot be decoded".
  std::string text() const;
  /// Returns what the user can do about it, or an empty string.
  std::string hint() const;

  bool operator==(const FailureReport&) const = default;
};

}  // namespace millrace::train
