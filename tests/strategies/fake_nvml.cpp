// Fake NVML: one device at 0000:1b:00.0 that is 75% busy and fails every third time.
#include <cstring>

namespace {

struct Rates {
  unsigned gpu, memory;
};

bool started = false;
int device = 0;
int calls = 0;

}  // namespace

extern "C" {

int nvmlInit_v2() {
  started = true;
  return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** handle) {
  constexpr int kUninitialized = 1;
  constexpr int kNotFound = 6;
  if (!started) return kUninitialized;
  if (std::strcmp(id, "0000:1b:00.0") != 0) return kNotFound;
  *handle = &device;
  return 0;
}

int nvmlDeviceGetUtilizationRates(void* handle, Rates* rates) {
  constexpr int kUnknown = 999;
  if (handle != &device || ++calls % 3 == 0) return kUnknown;
  *rates = {75, 20};
  return 0;
}

}  // extern "C"
