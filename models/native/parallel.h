// How kernels that know nothing of LibTorch are given threads.
#pragma once

#include <cstdint>
#include <functional>

namespace millrace::train::native {

/// Work on tasks [begin, end). What a task computes does not depend on who else runs.
using Tasks = std::function<void(std::int64_t begin, std::int64_t end)>;
/// Runs tasks [0, count), in any cut, on as many threads as it likes; returns when all are done.
using Parallel = std::function<void(std::int64_t count, const Tasks& tasks)>;

}  // namespace millrace::train::native
