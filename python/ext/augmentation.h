// Augmentations that are Python functions: units of the plugin interface whose calls take Python's
// interpreter lock.
#pragma once

#include <nanobind/nanobind.h>

#include <mutex>
#include <string>

#include "millrace/millrace.h"

namespace millrace::python {

/// Guards the registry of units, which may grow while loaders are made on other threads. Hold it
/// without Python's lock.
std::mutex& registry_lock();

/// Returns the unit of the Python function with that name, which lasts as long as the process, or
/// null.
const millrace_unit* unit_of(const std::string& name);

/// Adds define_augmentation() and augmentation_counts() to the module.
void bind_augmentation(nanobind::module_& module);

}  // namespace millrace::python
