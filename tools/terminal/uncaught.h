// How a failure is told that reaches main(), or nobody.
#pragma once

#include <exception>

#include "millrace/error.h"

namespace millrace::tools {

/// Says in one line what went wrong; the exit code that it leads to.
Exit explain(const std::exception_ptr& failure);

/// From now on exceptions that nobody can catch are explained too, and end the program with their
/// exit code: those of libraries' threads and initialisers, which need memory that may not be
/// there.
void explain_uncaught();

}  // namespace millrace::tools
