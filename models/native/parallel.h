// Interface through which kernels that are independent of LibTorch run on threads.
#pragma once

#include <cstdint>
#include <functional>

namespace millrace::train::native {

/// Work on tasks [begin, end). The result of a task does not depend on other tasks.
using Tasks = std::function<void(std::int64_t begin, std::int64_t end)>;
/// Runs tasks [0, count), divided in any way, on any number of threads. Returns when all are done.
using Parallel = std::function<void(std::int64_t count, const Tasks& tasks)>;

}  // namespace millrace::train::native
