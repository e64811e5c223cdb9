// Counts the heap allocations of the process (operator new), where no sanitizer owns them.
#pragma once

#include <cstdint>

namespace millrace::pipeline {

bool counts_allocations();
std::uint64_t allocations();

}  // namespace millrace::pipeline
