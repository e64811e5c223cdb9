// Errors of LibTorch in one line.
#pragma once

#include <c10/util/Exception.h>

#include <string>

#include "millrace/error.h"

namespace millrace::train {

/// Runs `work` and shortens torch's errors, which carry a stack trace, to the line that says what
/// went wrong.
template <class Work>
auto shorten_torch_errors(const char* doing, const Work& work) {
  try {
    return work();
  } catch (const c10::OutOfMemoryError&) {
    throw RunError(std::string("out of device memory in the ") + doing,
                   "make loader.batch or eval.batch smaller");
  } catch (const c10::Error& error) {
    std::string what = error.what_without_backtrace();
    throw RunError(std::string("LibTorch failed in the ") + doing + ": " +
                   what.substr(0, what.find('\n')));
  }
}

}  // namespace millrace::train
