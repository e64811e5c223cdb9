// Exports of libmillrace_cuda.so: plain C functions, found by dlsym, so that machines without
// CUDA's libraries never load them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/private_api.h"

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace millrace::train {
class DeviceGraph;
class DeviceGroup;
}  // namespace millrace::train

extern "C" {
/// Returns the number of usable devices. If it is 0, writes the reason to `reason` (cut to
/// `capacity`).
MILLRACE_PRIVATE_API int millrace_cuda_device_count(char* reason, std::size_t capacity);
/// Writes a name such as "NVIDIA H200", for 0 <= device < count; cut to `capacity`.
MILLRACE_PRIVATE_API void millrace_cuda_device_name(int device, char* name, std::size_t capacity);
/// Writes the PCI bus id, "0000:1b:00.0", or "" if it is unknown.
MILLRACE_PRIVATE_API void millrace_cuda_bus_id(int device, char* id, std::size_t capacity);
/// Returns the peak number of bytes that tensors held on the device.
MILLRACE_PRIVATE_API std::uint64_t millrace_cuda_peak_bytes(int device);
/// Makes a device the calling thread's current one, which is device 0 in a new thread. Every call
/// of CUDA that names no device creates a context, of some 500 MB, on the current one.
MILLRACE_PRIVATE_API void millrace_cuda_use(int device);
/// Allocates page-locked host memory that every device can copy from. Returns null if none is left.
/// Any thread may call it; it and millrace_cuda_unpin() call millrace_cuda_use().
MILLRACE_PRIVATE_API void* millrace_cuda_pin(std::size_t size, int device);
MILLRACE_PRIVATE_API void millrace_cuda_unpin(void* memory, int device);
/// Returns an uncaptured graph, owned by the caller.
MILLRACE_PRIVATE_API millrace::train::DeviceGraph* millrace_cuda_new_graph(int device);
/// Returns NCCL's group of the first `devices` devices, owned by the caller. If that fails, returns
/// null and writes the reason to `reason` (cut to `capacity`).
MILLRACE_PRIVATE_API millrace::train::DeviceGroup* millrace_cuda_new_group(int devices,
                                                                           char* reason,
                                                                           std::size_t capacity);
/// Adds NCCL for tensors on this device to `group`, whose ranks meet through `store`. If that
/// fails, writes the reason to `reason` (cut to `capacity`); otherwise leaves it unchanged. Missing
/// from modules built without NCCL's header.
MILLRACE_PRIVATE_API void millrace_cuda_add_nccl(c10d::ProcessGroup* group, c10d::Store* store,
                                                 int device, double timeout_s, char* reason,
                                                 std::size_t capacity);
}
