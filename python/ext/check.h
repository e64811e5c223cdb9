// Checks of augmentations that are Python functions: the steps of `plugins check`.
#pragma once

#include <nanobind/nanobind.h>

namespace millrace::python {

/// Adds the class Checks to the module.
void bind_check(nanobind::module_& module);

}  // namespace millrace::python
