// Work that rank 0 does alone while the other ranks wait for it.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/private_api.h"

namespace millrace::train {

/// Returns every rank's text, by rank: Strategy::gather().
using Gather = std::function<std::vector<std::string>(const std::string& mine)>;

/// Runs `work` on rank 0, on a thread of its own, while the other ranks wait, however long it
/// takes: rank 0 gives a sign of life four times within `timeout`, after which a gather() fails.
/// All ranks must call it. What `work` throws is thrown on every rank.
MILLRACE_PRIVATE_API void do_on_first_rank(bool is_first, std::chrono::milliseconds timeout,
                                           const Gather& gather, const std::function<void()>& work);

}  // namespace millrace::train
