// Runs this program as several ranks of one distributed run on this host.
#pragma once

#include <string>
#include <vector>

#include "millrace/error.h"

namespace millrace::tools {

/// Runs `millrace ARGUMENTS` as `count` child processes with torchrun's environment. Rank 0
/// inherits this process's stdout and stderr. The others' stderr is printed with "[rank R] " before
/// each line, and their stdout is dropped. An error that ranks share is printed once. The ranks
/// meet at the loopback address, with a key in their environment. The first Ctrl-C or SIGTERM is
/// passed on to all; the second one kills them, as the death of this process does. When one rank
/// fails, the others get some seconds to end by themselves. Returns the first failing rank's exit
/// code. Throws RunError if a signal killed it, or if a rank cannot be started.
Exit launch_ranks(int count, const std::vector<std::string>& arguments);

}  // namespace millrace::tools
