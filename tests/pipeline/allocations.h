// Counts the heap allocations of the process (operator new), unless a sanitizer replaces it.
#pragma once

#include <cstdint>

namespace millrace::pipeline {

bool counts_allocations();
std::uint64_t allocations();

}  // namespace millrace::pipeline
