// Explains why libmillrace_cuda.so cannot be loaded, for the command that needs it and for
// millrace doctor. Independent of LibTorch and CUDA.
#pragma once

#include <string>
#include <vector>

#include "base/private_api.h"

namespace millrace::train {

/// Returns the package that has a library, as pip calls it: "nvidia-cudnn-cu13" for libcudnn.so.9;
/// "the NVIDIA driver" for libcuda.so.1; empty if it is unknown.
MILLRACE_PRIVATE_API std::string package_of_library(const std::string& library);

/// Returns the libraries that `module` needs and the dynamic linker does not find, in its order,
/// without loading any. Empty if there are none, or if the linker cannot be asked.
MILLRACE_PRIVATE_API std::vector<std::string> missing_libraries(const std::string& module);

/// Says why the module could not be loaded. `loader` is what dlerror() said. Names every missing
/// library with its package, or the lack of a module; otherwise returns `loader`.
MILLRACE_PRIVATE_API std::string why_not_loaded(const std::string& module,
                                                const std::string& loader);

/// Returns the path of the CUDA module that belongs to this program, whether it exists or not.
MILLRACE_PRIVATE_API std::string cuda_module_path();

}  // namespace millrace::train
