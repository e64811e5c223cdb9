// The CUDA module may be loaded on demand because nothing asks torch about CUDA before: torch looks
// for the hooks that the module registers once, at first use, and then never again. If a static
// initialiser of ours (the native ops', say) were that first use, the module would come too late.
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

namespace millrace::train {
namespace {

/// What libtorch_cuda.so registers when it is loaded, as far as it can be told without a device.
struct FakeHooks final : at::CUDAHooksInterface {
  bool hasCUDA() const override { return true; }
};

void load_module() {
  at::CUDAHooksRegistry()->Register("CUDAHooks", [](at::CUDAHooksArgs) {
    return std::unique_ptr<at::CUDAHooksInterface>(new FakeHooks);
  });
}

[[noreturn]] void leave(bool has_cuda) { std::_Exit(has_cuda ? 11 : 12); }

/// In a process of its own, as the first use lasts: "threadsafe" starts this program anew, with all
/// its static initialisers and those of libmillrace_torch.so.
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

/// That the test above could fail.
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
