// A process that trains on one of several GPUs touches no other: every thread that calls CUDA has
// set its device first. The module is a stand-in that records contexts.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <thread>

#include "strategies/torch/cuda_library.h"

namespace millrace::train {
namespace {

class CudaDevices : public ::testing::Test {
 protected:
  void SetUp() override {
    // CudaLibrary then finds it by its name, as a library that is already loaded.
    module_ = dlopen(MILLRACE_FAKE_CUDA, RTLD_NOW | RTLD_GLOBAL);
    ASSERT_NE(module_, nullptr) << dlerror();
  }
  template <class Function>
  Function* symbol(const char* name) {
    return reinterpret_cast<Function*>(dlsym(module_, name));
  }
  unsigned contexts() { return symbol<unsigned()>("fake_cuda_contexts")(); }
  void restore() { symbol<void()>("fake_cuda_restore")(); }

  void* module_ = nullptr;
};

TEST_F(CudaDevices, ARankHasAContextOnItsOwnAlone) {
  EXPECT_EQ(contexts(), 0u);
  const CudaLibrary cuda = CudaLibrary::load("train.device=cuda:2", 2);
  EXPECT_EQ(cuda.device_name(), "stand-in 2");
  restore();  // an event of the trainer's thread is destroyed
  const auto memory = cuda.pinned_memory();
  void* slot = nullptr;
  std::thread([&] { slot = memory->allocate(4096); }).join();
  std::thread([&] { memory->release(slot, 4096); }).join();
  EXPECT_EQ(contexts(), 1u << 2);
}

TEST_F(CudaDevices, AThreadOfAReplicaHasItsReplicas) {
  const CudaLibrary cuda = CudaLibrary::load("train.device=cuda:1", 1);
  std::thread([&] {
    cuda.use(2);
    restore();
  }).join();
  EXPECT_EQ(contexts() & 1u, 0u);
}

/// Proves that the tests above can fail.
TEST_F(CudaDevices, AThreadThatHasSetNoneTouchesTheFirst) {
  std::thread([&] { restore(); }).join();
  EXPECT_EQ(contexts(), 1u);
}

}  // namespace
}  // namespace millrace::train
