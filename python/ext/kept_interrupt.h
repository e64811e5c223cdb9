// Ctrl-C in a Python function that the pipeline has called. The samples below cannot throw it: it
// is kept on the thread until the call that waits for the batch raises it.
#pragma once

namespace millrace::python {

/// Keeps the exception that has been raised, if it is a KeyboardInterrupt, and returns whether it
/// is. Call it with the GIL.
bool keep_interrupt();

/// Returns whether one is kept on this thread.
bool has_interrupt();

/// Throws the one that is kept on this thread, if any, as nanobind::python_error. Call it with the
/// GIL.
void raise_interrupt();

}  // namespace millrace::python
