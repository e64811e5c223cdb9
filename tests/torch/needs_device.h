// Tests that need a CUDA device.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "millrace/error.h"
#include "strategies/torch/cuda_library.h"

namespace millrace::test {

/// Loads the CUDA module. Without a device it skips the test and says what is therefore not tested,
/// or fails it where MILLRACE_DEVICE_TESTS=required says that there is one.
inline void load_device_or_skip(const std::string& not_tested) {
  try {
    train::CudaLibrary::load("train.device=cuda", 0);
  } catch (const DeviceError& error) {
    const char* const wanted = std::getenv("MILLRACE_DEVICE_TESTS");
    if (wanted != nullptr && std::string(wanted) == "required") FAIL() << error.what();
    GTEST_SKIP() << not_tested << ": " << error.what();
  }
}

}  // namespace millrace::test
