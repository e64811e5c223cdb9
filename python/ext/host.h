// Answers for a Python process what the pipeline's set-up asks of the program around it: remarks
// become warnings, and plugins are granted by the call.
#pragma once

#include <string>
#include <vector>

namespace millrace::python {

/// Returns the remarks since the last call, and forgets them. Thread-safe.
std::vector<std::string> take_remarks();

}  // namespace millrace::python
