// Opens the LibTorch library and looks up its entry points.
#include "strategies/trainer/torch_library.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>

#include "millrace/error.h"

namespace millrace::train {
namespace {

/// Sets what the libraries read when they are loaded.
void set_environment() {
  // libgomp's threads sleep between the parallel regions of two steps instead of spinning on cores
  // that loader workers could use, but only after some 20 to 50 µs: to wake a core that went idle
  // takes longer than most regions of a small model.
  if (getenv("OMP_WAIT_POLICY") == nullptr && getenv("GOMP_SPINCOUNT") == nullptr) {
    setenv("OMP_WAIT_POLICY", "passive", 1);
    setenv("GOMP_SPINCOUNT", "1000", 1);
  }
  // Silences c10d's messages on the way to an error, which we report in a line of our own.
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", 0);
}

constexpr const char* kTorch = "libmillrace_torch.so";

/// Opens a library through the program's RUNPATH. Never closes it.
void* open_library(const char* file) {
  set_environment();
  void* const opened = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
  if (opened == nullptr) {
    const char* reason = dlerror();
    throw DeviceError(std::string("LibTorch cannot be loaded: ") +
                          (reason != nullptr ? reason : std::string(file) + " is missing"),
                      "configure with MILLRACE_TORCH=ON (bash tools/quickstart does), or use "
                      "train.device=simulated");
  }
  return opened;
}

template <class Function>
Function* function(const char* name) {
  return reinterpret_cast<Function*>(torch_function(kTorch, name));
}

}  // namespace

void* torch_function(const char* library, const char* name) {
  open_library(kTorch);  // first, because its message says how to get it
  void* const symbol = dlsym(open_library(library), name);
  if (symbol == nullptr)
    throw DeviceError(std::string(library) + " has no " + name,
                      "it belongs to another build: build all targets again");
  return symbol;
}

std::unique_ptr<Strategy> make_torch_strategy(const StrategyOptions& options) {
  return std::unique_ptr<Strategy>(
      function<Strategy*(const StrategyOptions*)>("millrace_make_strategy")(&options));
}

std::future<void> load_torch_ahead(const std::string& device) {
  set_environment();  // here, because no other thread may read the environment meanwhile
  return std::async(std::launch::async, [device] {
    try {
      function<void(const char*)>("millrace_load_ahead")(device.c_str());
    } catch (const DeviceError&) {  // make_torch_strategy() says why
    }
  });
}

std::string why_no_cuda() try {
  std::array<char, 4096> reason{};
  function<void(char*, std::size_t)>("millrace_try_cuda")(reason.data(), reason.size());
  return reason.data();
} catch (const DeviceError& error) {
  return error.what();
}

std::string torch_version() { return function<const char*()>("millrace_torch_version")(); }

}  // namespace millrace::train
