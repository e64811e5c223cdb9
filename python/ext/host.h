// Answers for a Python process what setting up a pipeline asks of the process around it: remarks
// become warnings, and plugins are granted by the call.
#pragma once

#include <string>
#include <vector>

#include "pipeline/setup/host.h"

namespace millrace::python {

/// Returns the host, which lives until the process ends. Thread-safe.
const pipeline::Host& host();

/// Returns the remarks since the last call, and forgets them. Thread-safe.
std::vector<std::string> take_remarks();

}  // namespace millrace::python
