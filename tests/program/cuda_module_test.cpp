// A CUDA module whose libraries are missing: train and doctor name each with its package. The
// module is a stand-in beside a copy of the program, and needs two libraries that exist only while
// it is built.
#include "strategies/trainer/cuda_module.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

class CudaModule : public ProgramTest {
 protected:
  /// Returns a copy of the program that finds the stand-in where the module would be.
  std::string program_with_a_broken_module() {
    const fs::path folder = in("copy"), build = MILLRACE_BUILD;
    fs::create_directories(folder / "lib");
    fs::copy_file(build / "millrace", folder / "millrace");
    fs::create_directory_symlink(build / "recipes", folder / "recipes");
    for (const char* name : {"pipeline", "trainer", "torch"}) {
      const std::string file = std::string("libmillrace_") + name + ".so";
      fs::copy_file(build / "lib" / file, folder / "lib" / file);
    }
    fs::copy_file(MILLRACE_BROKEN_CUDA, folder / "lib/libmillrace_cuda.so");
    return folder / "millrace";
  }
};

TEST_F(CudaModule, EveryMissingLibraryIsNamedWithItsPackage) {
  MILLRACE_NEEDS_TORCH();
  RunOptions options;
  options.program = program_with_a_broken_module();
  const std::string reason =
      "the CUDA module cannot be loaded: libraries are missing: libcudnn.so.98 (nvidia-cudnn-cu13) "
      "and libcufile.so.97 (nvidia-cufile); bash tools/quickstart --cuda installs what LibTorch "
      "needs";
  const Result trained = run({"train", "mnist-lenet", "data.path=" + data(), "train.device=cuda",
                              "--run", in("run").string()},
                             options);
  EXPECT_TRUE(refused(trained, 4, {"train.device=cuda: " + reason}));
  const Result doctor = run({"doctor", "--json"}, options);
  ASSERT_TRUE(succeeded(doctor));
  EXPECT_EQ(parse_json(doctor.out)["cuda"]["training_fails"], reason);
  const Result text = run({"doctor"}, options);
  EXPECT_NE(text.out.find("training on CUDA:  fails: " + reason), std::string::npos) << text.out;
}

TEST_F(CudaModule, WhereThereIsNoneTrainAndDoctorSayWhatConfigureSaid) {
  MILLRACE_NEEDS_TORCH();
  RunOptions options;
  options.program = program_with_a_broken_module();
  const fs::path module = in("copy") / "lib/libmillrace_cuda.so";
  fs::remove(module);
  const std::string why = MILLRACE_NO_CUDA_MODULE;
  const std::string reason =
      "the CUDA module cannot be loaded: " +
      (why.empty() ? module.string() + " is missing: bash tools/quickstart builds it"
                   : "this build " + why);
  EXPECT_TRUE(refused(run({"train", "mnist-lenet", "data.path=" + data(), "train.device=cuda",
                           "--run", in("run").string()},
                          options),
                      4, {"train.device=cuda: " + reason}));
  EXPECT_EQ(parse_json(run({"doctor", "--json"}, options).out)["cuda"]["training_fails"], reason);
}

TEST_F(CudaModule, LibrariesHaveTheirOwnPackages) {
  using train::package_of_library;
  EXPECT_EQ(package_of_library("libcusparse.so.12"), "nvidia-cusparse");
  EXPECT_EQ(package_of_library("libcusparseLt.so.0"), "nvidia-cusparselt-cu13");
  EXPECT_EQ(package_of_library("libcublasLt.so.13"), "nvidia-cublas");
  EXPECT_EQ(package_of_library("libnccl.so.2"), "nvidia-nccl-cu13");
  EXPECT_EQ(package_of_library("libnvshmem_host.so.3"), "nvidia-nvshmem-cu13");
  EXPECT_EQ(package_of_library("libcuda.so.1"), "the NVIDIA driver");
  EXPECT_EQ(package_of_library("libm.so.6"), "");
}

TEST_F(CudaModule, ALibraryThatLacksNothingFailsForAnotherReason) {
  const std::string whole = fs::path(MILLRACE_BUILD) / "lib/libmillrace_trainer.so";
  EXPECT_TRUE(train::missing_libraries(whole).empty());
  EXPECT_EQ(train::why_not_loaded(whole, "undefined symbol: f"), "undefined symbol: f");
  EXPECT_TRUE(train::missing_libraries(in("none.so")).empty());
}

}  // namespace
}  // namespace millrace::program_test
