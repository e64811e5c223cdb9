// Visibility between millrace's own libraries.
#pragma once

#include "millrace/export.h"

/// Marks a class or function that one of our libraries exports for the program or for another of
/// our libraries. It is not part of the public interface, and may change with every version.
#define MILLRACE_PRIVATE_API MILLRACE_EXPORT
