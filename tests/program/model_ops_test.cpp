// model.ops=auto: resolved before the first step, kept in config.toml, and the same for all ranks,
// resumed runs and runs of a sweep.
#include "base/simd.h"
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

class ModelOps : public ProgramTest {
 protected:
  void SetUp() override { MILLRACE_NEEDS_TORCH(); }

  /// Returns "native" or "torch", as in the run's config.toml.
  std::string ops_of(const std::filesystem::path& run) const {
    for (const std::string& line : lines_of(read_file(run / "config.toml")))
      if (line.starts_with("ops = \"")) return line.substr(7, line.size() - 8);
    return "none";
  }
  std::string ops_with(const Arguments& more, const std::string& simd) {
    const std::string name = "run" + std::to_string(++runs_);
    EXPECT_TRUE(succeeded(run(training(name, Arguments{"train.steps=2"} + more), at(simd))));
    EXPECT_EQ(summary(name)["ops"], ops_of(in(name)));
    EXPECT_EQ(summary(name)["simd"], simd);
    return ops_of(in(name));
  }
  static RunOptions at(const std::string& simd) {
    RunOptions options;
    options.env["MILLRACE_SIMD"] = simd;
    return options;
  }
  static std::string best() { return std::string(base::name_of(base::simd_supported())); }

 private:
  int runs_ = 0;
};

TEST_F(ModelOps, AutoIsResolvedByLevelAndRecipe) {
  EXPECT_EQ(ops_with({}, "scalar"), "torch");
  if (base::simd_supported() == base::Simd::scalar) GTEST_SKIP() << "this processor has no AVX2";
  EXPECT_EQ(ops_with({}, "avx2"), "native");
  EXPECT_EQ(ops_with({"train.amp=bf16"}, best()), "torch");
  EXPECT_EQ(ops_with({"train.channels_last=on"}, best()), "torch");
  EXPECT_EQ(ops_with({"model.name=mlp"}, best()), "torch");
  EXPECT_EQ(ops_with({"model.ops=torch"}, best()), "torch");
  EXPECT_EQ(ops_with({"model.ops=native"}, "scalar"), "native");
  EXPECT_EQ(ops_with({"train.strategy=data_parallel"}, best()), "native");
}

TEST_F(ModelOps, StayWhatTheRunBeganWith) {
  if (base::simd_supported() == base::Simd::scalar) GTEST_SKIP() << "this processor has no AVX2";
  const Arguments steps{"train.epochs=2", "train.checkpoint_every=3"};
  ASSERT_TRUE(succeeded(run(training("whole", steps), at(best()))));
  ASSERT_TRUE(succeeded(run(training("part", steps + Arguments{"train.steps=6"}), at(best()))));
  // The repeated recipe says auto: at the scalar level a new run would choose LibTorch's ops.
  const Result other =
      run(training("part", steps + Arguments{"train.steps=9", "--resume"}), at("scalar"));
  ASSERT_TRUE(succeeded(other));
  EXPECT_EQ(ops_of(in("part")), "native");
  EXPECT_EQ(count_of(other.err, "warning"), 1u) << other.err;
  EXPECT_NE(other.err.find("was written at SIMD level " + best() + ", this is scalar"),
            std::string::npos)
      << other.err;

  // At the level where it began there is no warning, and the bits equal the whole run's.
  ASSERT_TRUE(succeeded(run(training("same", steps + Arguments{"train.steps=6"}), at(best()))));
  const Result same =
      run(training("same", steps + Arguments{"train.steps=0", "--resume"}), at(best()));
  ASSERT_TRUE(succeeded(same));
  EXPECT_EQ(count_of(same.err, "warning"), 0u) << same.err;
  EXPECT_EQ(summary("same")["parameters_hash"], summary("whole")["parameters_hash"]);

  EXPECT_TRUE(refused(run({"train", "--resume", "--run", in("same").string(), "train.steps=0",
                           "train.epochs=3", "model.ops=torch"}),
                      2, {"model.ops"}));
}

TEST_F(ModelOps, AreTheSameInAllRunsOfASweep) {
  if (base::simd_supported() == base::Simd::scalar) GTEST_SKIP() << "this processor has no AVX2";
  const auto swept = [&](const std::string& name, const Arguments& more, const std::string& simd) {
    const Result result = run(
        Arguments{"sweep", "mnist-lenet-plain", "data.path=" + data(), "train.threads=1",
                  "train.steps=2", "eval.every=0", "loader.workers=0", "--run", in(name).string()} +
            more,
        at(simd));
    EXPECT_TRUE(succeeded(result));
    std::map<std::string, int> count;
    for (const auto& entry : std::filesystem::directory_iterator(in(name) / "runs"))
      if (entry.is_directory()) ++count[ops_of(entry.path())];
    return count;
  };
  using Count = std::map<std::string, int>;
  EXPECT_EQ(swept("batches", {"loader.batch=20,32"}, best()), (Count{{"native", 2}}));
  // bf16 requires LibTorch's ops, so the sweep's f32 runs use them too.
  EXPECT_EQ(swept("types", {"loader.batch=20", "train.amp=off,bf16"}, best()),
            (Count{{"torch", 2}}));
  // Adds a run at a level where a new sweep would choose LibTorch's ops.
  EXPECT_EQ(swept("batches", {"loader.batch=20,32", "--repeats", "2", "--resume"}, "scalar"),
            (Count{{"native", 4}}));
}

TEST_F(ModelOps, AreTheSameOnAllRanks) {
  if (base::simd_supported() == base::Simd::scalar) GTEST_SKIP() << "this processor has no AVX2";
  RunOptions options = at(best());
  const Arguments launch{"launch", "-n", "2", "--"};
  const Result result =
      run(launch + training("ranks", {"train.strategy=ddp", "loader.batch=33", "train.steps=2"}),
          options);
  ASSERT_TRUE(succeeded(result));
  EXPECT_EQ(ops_of(in("ranks")), "native");
}

}  // namespace
}  // namespace millrace::program_test
