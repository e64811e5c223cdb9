// Reads the number of a DataLoader's batch and the number of its samples.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace millrace::python {

/// Returns the number of a batch from the tuple in which torch sends it, or kUnknown.
std::int64_t batch_of(nanobind::handle task);

/// Returns the number of samples that a batch is asked to have; 1 where samples are not batched.
std::int64_t samples_at(nanobind::handle index);

/// Returns the number of samples of a batch: the length of its first array. Returns kUnknown if
/// there is none, and for a batch that does not tell, such as a nested tensor: the watched loop
/// goes on. Throws what a handler of a signal raised that happened to run here, as at the death of
/// a worker.
std::int64_t samples_in(nanobind::handle batch);

}  // namespace millrace::python
