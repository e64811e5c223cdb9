// Implements CudaLibrary with dlopen and dlsym.
#include "strategies/torch/cuda_library.h"

#include <dlfcn.h>

#include <array>

#include "millrace/error.h"
#include "strategies/torch/cuda_api.h"
#include "strategies/trainer/cuda_module.h"

namespace millrace::train {
namespace {

constexpr const char* kLibrary = "libmillrace_cuda.so";

/// Returns the function `name`, typed by its declaration in cuda_api.h.
template <class Function>
Function* symbol(void* library, const char* name) {
  void* const address = dlsym(library, name);
  if (address == nullptr)
    throw DeviceError(std::string(kLibrary) + " is of another version: it lacks " + name,
                      "build millrace again");
  return reinterpret_cast<Function*>(address);
}

class PinnedMemory final : public pipeline::SlotMemory {
 public:
  PinnedMemory(void* library, int device)
      : device_(device),
        pin_(symbol<decltype(millrace_cuda_pin)>(library, "millrace_cuda_pin")),
        unpin_(symbol<decltype(millrace_cuda_unpin)>(library, "millrace_cuda_unpin")) {}
  void* allocate(std::size_t size) override {
    void* const memory = pin_(size, device_);
    if (memory == nullptr)
      throw RunError("no page-locked memory for batches: " + std::to_string(size) + " bytes",
                     "make loader.prefetch or loader.batch smaller, or raise the limit on locked "
                     "memory");
    return memory;
  }
  void release(void* memory, std::size_t) noexcept override { unpin_(memory, device_); }

 private:
  int device_;
  decltype(&millrace_cuda_pin) pin_;
  decltype(&millrace_cuda_unpin) unpin_;
};

}  // namespace

CudaLibrary CudaLibrary::load(const std::string& setting, int index, int devices) {
  const std::string where = setting.empty() ? "" : setting + ": ";
  const std::string hint = "set " + setting.substr(0, setting.find_last_of("= ") + 1) +
                           "cpu, or see what millrace doctor says about CUDA";
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    throw DeviceError(where + "the CUDA module cannot be loaded: " +
                          why_not_loaded(cuda_module_path(), reason == nullptr ? kLibrary : reason),
                      hint);
  }
  std::array<char, 256> reason{};
  const int count = symbol<decltype(millrace_cuda_device_count)>(
      library, "millrace_cuda_device_count")(reason.data(), reason.size());
  if (count == 0) throw DeviceError(where + "no CUDA device: " + reason.data(), hint);
  if (index >= count)
    throw DeviceError(where + "there are only " + std::to_string(count) + " CUDA devices",
                      "the last one is cuda:" + std::to_string(count - 1));
  if (index + devices > count)
    throw DeviceError(where + "train.replicas=" + std::to_string(devices) +
                          " take a CUDA device each, but there are only " + std::to_string(count),
                      "set train.replicas to at most that, or train.strategy=single");
  CudaLibrary cuda(library, index);
  cuda.use(index);
  return cuda;
}

void CudaLibrary::use(int device) const {
  symbol<decltype(millrace_cuda_use)>(library_, "millrace_cuda_use")(device);
}

std::string CudaLibrary::device_name() const {
  std::array<char, 256> name{};
  symbol<decltype(millrace_cuda_device_name)>(library_, "millrace_cuda_device_name")(
      index_, name.data(), name.size());
  return name.data();
}

std::string CudaLibrary::bus_id() const {
  std::array<char, 32> id{};
  symbol<decltype(millrace_cuda_bus_id)>(library_, "millrace_cuda_bus_id")(index_, id.data(),
                                                                           id.size());
  return id.data();
}

std::shared_ptr<pipeline::SlotMemory> CudaLibrary::pinned_memory() const {
  return std::make_shared<PinnedMemory>(library_, index_);
}

std::unique_ptr<DeviceGraph> CudaLibrary::make_graph() const {
  return std::unique_ptr<DeviceGraph>(
      symbol<decltype(millrace_cuda_new_graph)>(library_, "millrace_cuda_new_graph")(index_));
}

std::unique_ptr<DeviceGroup> CudaLibrary::make_group(int devices) const {
  std::array<char, 256> reason{};
  std::unique_ptr<DeviceGroup> group(symbol<decltype(millrace_cuda_new_group)>(
      library_, "millrace_cuda_new_group")(devices, reason.data(), reason.size()));
  if (group == nullptr)
    throw DeviceError(std::string("train.strategy=data_parallel over NCCL: ") + reason.data(),
                      "NCCL_DEBUG=INFO in the environment makes it say more; train.strategy=single "
                      "needs none");
  return group;
}

void CudaLibrary::add_nccl(c10d::ProcessGroup& group, c10d::Store& store, double timeout_s) const {
  std::array<char, 256> reason{};
  symbol<decltype(millrace_cuda_add_nccl)>(library_, "millrace_cuda_add_nccl")(
      &group, &store, index_, timeout_s, reason.data(), reason.size());
  if (reason[0] != '\0')
    throw DeviceError(std::string("train.strategy=ddp over NCCL: ") + reason.data(),
                      "build millrace with the NCCL that LibTorch has, or use train.device=cpu");
}

std::uint64_t CudaLibrary::peak_bytes() const {
  return symbol<decltype(millrace_cuda_peak_bytes)>(library_, "millrace_cuda_peak_bytes")(index_);
}

}  // namespace millrace::train
