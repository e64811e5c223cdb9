// Loading the CUDA module on demand requires that nothing asks torch about CUDA before: torch looks
// for the hooks that the module registers once, at first use, and never again. If a static
// initialiser of ours (of the native ops, for example) were that first use, the module would come
// too late.
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

namespace millrace::train {
namespace {

/// Stands for the hooks that libtorch_cuda.so registers when it is loaded, as far as possible
/// without a device.
struct FakeHooks final : at::CUDAHooksInterface {
  bool hasCUDA() const override { return true; }
};

void load_module() {
  at::CUDAHooksRegistry()->Register("CUDAHooks", [](at::CUDAHooksArgs) {
    return std::unique_ptr<at::CUDAHooksInterface>(new FakeHooks);
  });
}

[[noreturn]] void leave(bool has_cuda) { std::_Exit(has_cuda ? 11 : 12); }

/// Runs in a process of its own, because the first use is permanent: "threadsafe" restarts this
/// program, with all its static initialisers, which are those of libmillrace_torch.so.
class CudaHooks : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(CudaHooks, AModuleLoadedAfterStaticInitialisationIsFound) {
  EXPECT_EXIT(
      {
        load_module();
        leave(at::detail::getCUDAHooks().hasCUDA());
      },
      ::testing::ExitedWithCode(11), "");
}

/// Proves that the test above can fail.
TEST_F(CudaHooks, AModuleLoadedAfterTheFirstUseIsNot) {
  EXPECT_EXIT(
      {
        static_cast<void>(at::hasCUDA());
        load_module();
        leave(at::detail::getCUDAHooks().hasCUDA());
      },
      ::testing::ExitedWithCode(12), "");
}

}  // namespace
}  // namespace millrace::train
