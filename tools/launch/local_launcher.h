// Runs this program again as several ranks of one distributed run on this host.
#pragma once

#include <string>
#include <vector>

#include "millrace/error.h"

namespace millrace::tools {

/// `millrace ARGUMENTS` as `count` child processes with torchrun's environment. Rank 0 has this
/// process's stdout and stderr; what the others say on stderr comes out with "[rank R] " before
/// each line, and their stdout is dropped. An error that they share is printed once. The ranks meet
/// at the loopback address, with a key in their environment. The first Ctrl-C or SIGTERM is passed
/// on to all; they die with this process, as by the second one. When one fails, the others get some
/// seconds to end by themselves. Returns the first failing rank's exit code; throws RunError where
/// it was killed by a signal, or where a rank cannot be started.
Exit launch_ranks(int count, const std::vector<std::string>& arguments);

}  // namespace millrace::tools
