// What libmillrace_cuda.so exports: plain C functions, found by dlsym, so that a machine without
// CUDA's libraries never has to load them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace millrace::train {
class DeviceGraph;
class DeviceSum;
}  // namespace millrace::train

extern "C" {
/// Number of devices that can be used. Where that is 0, `reason` says why (cut to `capacity`).
int millrace_cuda_device_count(char* reason, std::size_t capacity);
/// "NVIDIA H200", for 0 <= device < count; cut to `capacity`.
void millrace_cuda_device_name(int device, char* name, std::size_t capacity);
/// "0000:1b:00.0", or "" where it cannot be told.
void millrace_cuda_bus_id(int device, char* id, std::size_t capacity);
/// Most bytes that tensors held on the device at one time.
std::uint64_t millrace_cuda_peak_bytes(int device);
/// Page-locked host memory that every device copies from; null where there is none left.
void* millrace_cuda_pin(std::size_t size);
void millrace_cuda_unpin(void* memory);
/// A graph of the device's work, not captured yet; the caller's to delete.
millrace::train::DeviceGraph* millrace_cuda_new_graph(int device);
/// Sums over the first `devices` devices by NCCL; the caller's to delete. Null where that fails;
/// `reason` says why (cut to `capacity`).
millrace::train::DeviceSum* millrace_cuda_new_sum(int devices, char* reason, std::size_t capacity);
/// Gives `group`, whose ranks meet through `store`, NCCL for tensors on this device. Where that
/// fails `reason` says why (cut to `capacity`), else it is left alone. Absent from a module that
/// was built without NCCL's header.
void millrace_cuda_add_nccl(c10d::ProcessGroup* group, c10d::Store* store, int device,
                            double timeout_s, char* reason, std::size_t capacity);
}
