// Reports failures that reach main(), and those that no code catches.
#pragma once

#include <exception>

#include "millrace/error.h"

namespace millrace::tools {

/// Prints one line about what went wrong. Returns the exit code for it.
Exit explain(const std::exception_ptr& failure);

/// From now on, also explains exceptions that nobody can catch, and ends the program with their
/// exit code. These come from libraries' threads and initialisers, which may run out of memory.
void explain_uncaught();

}  // namespace millrace::tools
